"""What the folder of a page is made of: a runtime that is known by its hashes, and a card."""

import hashlib
import json
import re
from pathlib import Path

import pytest

from clearhead.errors import ClearheadError, ConfigError, FolderError
from clearhead.interop.certificate import Certificate
from clearhead.web import exporting, runtime
from clearhead.web.card import card_of
from clearhead.web.runtime import RuntimeFile, find_runtime, runtime_files

PAGE = Path(exporting.__file__).parent / "page_files"


def fill(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[RuntimeFile]:
    """A folder like npm's, with small files whose hashes stand in the table."""
    small: list[RuntimeFile] = []
    for each in runtime_files():
        data = f"{each.package} {each.path}".encode()
        path = folder / each.package / each.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        small.append(each._replace(bytes=len(data), sha256=digest))
    monkeypatch.setattr(runtime, "runtime_files", lambda: small)
    return small


def test_the_runtime_is_copied_from_npms_folder_or_from_an_earlier_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    small = fill(tmp_path / "node_modules", monkeypatch)
    found = find_runtime(tmp_path / "node_modules")
    assert set(found) == {each.name for each in small} | {"onnxruntime-web.LICENSE"}
    earlier = tmp_path / "runtime"
    earlier.mkdir()
    for name, data in found.items():
        (earlier / name).write_bytes(data)
    assert find_runtime(earlier) == found
    monkeypatch.chdir(tmp_path)
    assert find_runtime(None) == found


def test_another_runtime_is_refused_with_the_command_that_brings_the_right_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with pytest.raises(ClearheadError, match="npm install onnxruntime-web@") as error:
        find_runtime(tmp_path)
    assert "@huggingface/tokenizers@" in str(error.value)
    small = fill(tmp_path, monkeypatch)
    path = tmp_path / small[1].package / small[1].path
    path.write_bytes(bytes(reversed(path.read_bytes())))
    with pytest.raises(FolderError, match="its hash differs"):
        find_runtime(tmp_path)


def test_the_decision_page_has_the_table_of_the_runtime():
    page = Path(__file__).parent.parent.parent / "docs" / "decisions" / "2026-11-18-web.md"
    text = page.read_text(encoding="utf-8")
    for each in runtime_files():
        row = f"| {each.package} {each.version} | `{each.path}` | {each.bytes:,} | {each.licence} |"
        assert row in text


def test_the_pages_modules_are_all_written_and_hold_no_markup():
    assert {path.name for path in PAGE.glob("*.js")} == set(exporting.MODULES)
    for path in PAGE.glob("*.js"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|\beval\(|insertAdjacent|document\.write", text)
        assert not re.search(r"https?://", text)


def test_a_card_tells_how_a_run_was_trained(tmp_path: Path):
    model = tmp_path / "run" / "model"
    model.mkdir(parents=True)
    certificate = Certificate(
        family="web",
        architecture="Seq2Seq",
        versions={},
        library="onnxruntime",
        largest_difference=2e-6,
    )
    assert card_of(model, certificate)["training"] is None
    records = [
        {"step": 5, "loss": 3.0},
        {"step": 10, "valid": True, "new_best": True, "loss": 2.5},
        {"step": 11, "loss": 2.0},
    ]
    lines = [json.dumps(each) for each in records]
    (tmp_path / "run" / "metrics.jsonl").write_text("\n".join([*lines, '{"step": 12, "lo']))
    (tmp_path / "run" / "recipe.toml").write_text('name = "mine"')
    (model / "ATTRIBUTION.txt").write_text("by somebody")
    card = card_of(model, certificate)
    assert card["training"] == {"step": 10, "loss": 2.5}
    assert card["recipe"] == 'name = "mine"' and card["about"] is None
    assert card["files"] == {"ATTRIBUTION.txt": "by somebody"} and "2.0e-06" in card["parity"]


def test_options_of_the_web_are_refused_elsewhere(tmp_path: Path):
    import clearhead as ch

    with pytest.raises(ConfigError, match="example"):
        ch.export("copy-task", tmp_path / "out", to="huggingface", example="abc")
    assert not (tmp_path / "out").exists()
