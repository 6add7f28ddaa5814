"""Other people's models, where their files are at hand (CLEARHEAD_WILD): sound ones get no error
and no warning."""

import json
import os
import re
from pathlib import Path

import pytest

from tests.doctor.wild.__main__ import examine_one
from tests.doctor.wild.models import WILD

SOUND = (
    "nanoGPT",
    "minGPT",
    "rasbt GPT",
    "The Annotated Transformer",
    "hkproj pytorch-transformer",
)


@pytest.mark.slow
@pytest.mark.skipif("CLEARHEAD_WILD" not in os.environ, reason="CLEARHEAD_WILD is not set")
@pytest.mark.parametrize("wild", [w for w in WILD if w.name in SOUND], ids=lambda w: w.name)
def test_a_sound_model_by_somebody_else_is_recognised_and_left_in_peace(wild):
    if not wild.here:
        pytest.skip(f"{wild.repository} is not in CLEARHEAD_WILD")
    said = examine_one(wild, quick=True, show=False)
    assert said["recognised"] is not None, said
    assert [f for f in said["findings"] if f["severity"] != "note"] == []


ROOT = Path(__file__).parents[2]


def test_a_class_that_is_examined_again_takes_the_place_of_its_line(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    from tests.doctor import auto_classes

    result = tmp_path / "auto_classes.jsonl"
    result.write_text("".join(f'{{"name": "{name}", "built": false}}\n' for name in "ABC"))
    monkeypatch.setattr(auto_classes, "RESULT", result)
    monkeypatch.setattr(auto_classes, "names", lambda: dict.fromkeys("ABCD", "Config"))
    monkeypatch.setattr(auto_classes, "forked", lambda _, name, **__: {"name": name, "built": True})
    auto_classes.examine_all(["B"])
    lines = [json.loads(line) for line in result.read_text(encoding="utf-8").splitlines()]
    assert [(one["name"], one["built"]) for one in lines] == [
        ("A", False),
        ("B", True),
        ("C", False),
    ]


def test_the_page_claims_only_what_the_result_holds():
    result = ROOT / "benchmarks" / "results" / "wild.json"
    found = json.loads(result.read_text(encoding="utf-8"))["models"].values()
    page = (ROOT / "docs" / "en" / "doctor" / "in-the-wild.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 15
    repository = ""
    for _, first, _, said, *_ in rows:
        repository = repository if first.strip() == "the same" else first.split(",")[0].strip()
        names = re.findall(r"[\w.-]+/[\w.-]+", first) or [repository.split()[0].lower()]
        for case in re.findall(r"`(\w+\.\w+)`", said):
            named = [m for m in found if any(n in _address(m) for n in [*names, repository])]
            cases = {f["case"] for m in named for f in m["findings"] if f["verdict"] != "false"}
            assert case in cases, (first, case)


def _address(model: dict) -> str:
    return (
        model["repository"]
        .replace("pip:x_transformers", "x-transformers")
        .replace("pip:transformers", "hugging")
    )


def test_every_model_is_named_once_with_its_commit():
    names = [wild.name for wild in WILD]
    assert len(names) == len(set(names)) >= 33
    assert all(wild.commit for wild in WILD)
