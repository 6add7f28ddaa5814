"""Folders whose hashes are right and whose facts are not: the sender has made both."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clearhead.cli import main
from clearhead.config import TrainConfig
from clearhead.config.decode import DecodeConfig, GenerateConfig, TranslateConfig
from clearhead.errors import ConfigError, DataError
from clearhead.interop.tokenizer_file import open_tokenizer
from clearhead.training.report import read_metrics
from tests.security.conftest import Sent
from tests.security.test_checkpoints import steps
from tests.security.test_small_files_large_costs import outcome

Change = Callable[[dict[str, Any]], None]


def reseal(step: Path, change: Change) -> None:
    manifest = json.loads((step / "manifest.json").read_text())
    change(manifest)
    text = json.dumps(manifest, indent=1, ensure_ascii=False) + "\n"
    (step / "manifest.json").write_text(text)
    (step / "manifest.sha256").write_text(hashlib.sha256(text.encode()).hexdigest() + "\n")


POSITIONS: dict[str, Change] = {
    "a batch that no window has": lambda facts: facts["loader"].update(batch=10**9),
    "a window that no epoch has": lambda facts: facts["loader"].update(window=10**9),
    "a negative batch": lambda facts: facts["loader"].update(batch=-1),
    "no number": lambda facts: facts["loader"].update(epoch="x"),
    "no loader": lambda facts: facts.update(loader=None),
    "no step": lambda facts: facts["state"].update(step=None),
    "an unknown counter": lambda facts: facts["state"].update(x=1),
    "a huge step": lambda facts: facts["state"].update(step=10**30),
    "no recipe": lambda facts: facts.update(recipe=[]),
    "no versions": lambda facts: facts.update(versions=7),
}


@pytest.mark.parametrize("name", POSITIONS)
def test_a_checkpoint_with_untrue_facts_is_refused(name: str, sent: Sent):
    for step in steps(sent):
        reseal(step, POSITIONS[name])
    assert outcome(sent.train, seconds=20, megabytes=4000) == "returned 2"


def rewrite(sent: Sent, change: Change) -> None:
    path = sent.prepared / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def replace_tokens(sent: Sent, suffix: str, values: np.ndarray) -> None:
    """A token file or its index, with the hash that belongs to it."""
    manifest = json.loads((sent.prepared / "manifest.json").read_text())
    facts = manifest["splits"]["train"]["files"]["text"][0]
    path = sent.prepared / (facts["name"] + suffix)
    path.write_bytes(values.tobytes())
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    facts["index_sha256" if suffix else "sha256"] = digest
    (sent.prepared / "manifest.json").write_text(json.dumps(manifest))


def old_values(sent: Sent, suffix: str) -> np.ndarray:
    (path,) = (sent.prepared / "train").glob(f"*.ds{suffix}")
    return np.fromfile(path, "<u8" if suffix else "<u2")


def test_tokens_that_no_tokenizer_has_are_refused(sent: Sent, capsys):
    tokens = old_values(sent, "")
    tokens[5] = 65_000
    replace_tokens(sent, "", tokens)
    assert sent.train() == 2
    assert "it holds the token 65000 of a vocabulary of" in capsys.readouterr().err


@pytest.mark.parametrize("last", [2**63, 0, 7])
def test_an_index_that_does_not_divide_its_file_is_refused(last: int, sent: Sent, capsys):
    ends = old_values(sent, ".index")
    ends[-1] = last
    replace_tokens(sent, ".index", ends)
    assert sent.train() == 2
    assert "its index does not divide it into documents" in capsys.readouterr().err


MANIFESTS: dict[str, Change] = {
    "no task": lambda manifest: manifest.update(task="x"),
    "counts that are words": lambda m: m["splits"]["train"].update(documents="9"),
    "files that do not add up": lambda m: m["splits"]["train"].update(documents=10**6),
    "a hash that is none": lambda m: m["tokenizers"]["text"].update(sha256=7),
    "no splits": lambda m: m.update(splits={}),
    "no side": lambda m: m["splits"]["train"].update(files={}),
    "tokens of 3 bytes": lambda m: m["splits"]["train"]["files"]["text"][0].update(token_bytes=3),
    "another vocabulary": lambda m: m["tokenizers"]["text"].update(vocab_size=10**6),
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_prepared_data_with_untrue_facts_are_refused(name: str, sent: Sent):
    rewrite(sent, MANIFESTS[name])
    assert outcome(sent.train, seconds=20, megabytes=4000) == "returned 2"


@pytest.mark.parametrize("note", ["[]", "{", '{"tokenizer.json": 7}', '{"x": ["a", null]}', "7"])
def test_a_note_that_is_damaged_is_as_good_as_absent(note: str, sent: Sent):
    (sent.prepared / ".verified.json").write_text(note)
    (sent.prepared / ".work").mkdir(exist_ok=True)
    (sent.prepared / ".work/hashes.json").write_text(note)
    assert sent.train() == 0
    assert sent.prepare() == 0


LINES = ["[]", "7", '{"step": "x"}', '{"step": 1}', '{"step": 2, "loss": "nan"}', "[" * 9999]
LINES += [json.dumps({"step": 10**400, "epoch": 0, "loss": 1.0, "targets": 1})]
LINES += ['{"step": 3, "valid": true}', '{"step": 3, "valid": 1, "loss": [], "new_best": {}}']


def test_a_run_with_untrue_lines_is_shown_and_resumed(sent: Sent):
    with (sent.run / "metrics.jsonl").open("a") as file:
        file.write("\n".join(LINES) + "\n")
    assert main(["runs", str(sent.run)]) == 0
    assert main(["runs", str(sent.run.parent)]) == 0
    assert sent.train() == 0


METRICS: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "the last lines cut": lambda lines: lines[:4],
    "cut in a line": lambda lines: [*lines[:5], lines[5][:20]],
    "a line without its end": lambda lines: [*lines[:2], lines[2][:-1], *lines[3:]],
    "a byte flipped": lambda lines: [*lines[:2], b"\xff" + lines[2][1:], *lines[3:]],
    "another loss": lambda lines: [*lines[:2], lines[2].replace(b'"loss": ', b'"loss": 1'),
                                   *lines[3:]],
    "a step of the future": lambda lines: [lines[0].replace(b'"step": 1', b'"step": 9'),
                                           *lines[1:]],
    "a line twice": lambda lines: [*lines, lines[3]],
    "nothing left": lambda lines: [],
}  # fmt: skip


@pytest.fixture(scope="module")
def steps_7_and_8(honest: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Their losses, where nothing was changed."""
    run = tmp_path_factory.mktemp("unchanged") / "run"
    shutil.copytree(honest / "run", run)
    where = ["--prepared", str(honest / "prepared"), "--folder", str(run), "--train.steps", "8"]
    assert main(["train", str(honest / "r.toml"), *where]) == 0
    assert "missing or changed" not in (run / "log.txt").read_text()
    losses = [line["loss_hex"] for line in read_metrics(run / "metrics.jsonl")]
    assert len(losses) == 8
    return losses[-2:]


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.slow
def test_lines_of_metrics_that_are_lost_or_changed_are_named_when_a_run_resumes(
    name: str, sent: Sent, steps_7_and_8: list[str], capsys: pytest.CaptureFixture[str]
):
    """Training needs none of them: the steps that follow are those of the run."""
    metrics = sent.run / "metrics.jsonl"
    metrics.write_bytes(b"".join(METRICS[name](metrics.read_bytes().splitlines(keepends=True))))
    warning = f"warning: lines of {metrics} up to step 6 are missing or changed"
    assert sent.train() == 0
    assert capsys.readouterr().out.replace("\n", " ").count(warning) == 1
    assert warning in (sent.run / "log.txt").read_text()
    assert [line["loss_hex"] for line in read_metrics(metrics)][-2:] == steps_7_and_8
    assert sent.train("--train.steps", "9") == 0
    assert "missing or changed" not in capsys.readouterr().out, "it is said once"


@pytest.mark.parametrize(
    ("config", "settings"),
    [
        (TrainConfig, {"clip_norm": float("inf")}),
        (TrainConfig, {"lr": float("inf")}),
        (TrainConfig, {"max_minutes": float("inf")}),
        (TrainConfig, {"seed": 10**30}),
        (DecodeConfig, {"max_new": 10**12}),
        (GenerateConfig, {"max_new": 10**12}),
        (TranslateConfig, {"max_new": 10**12}),
        (TranslateConfig, {"batch": 10**12}),
    ],
    ids=str,
)
def test_a_number_beyond_all_use_is_refused(config: type, settings: dict[str, Any]):
    with pytest.raises(ConfigError, match=r"must be (a finite number|at most)"):
        config(**settings)


def test_a_saved_recipe_that_says_infinity_is_refused(sent: Sent, capsys):
    text = sent.recipe.read_text(encoding="utf-8")
    assert "clip_norm = 1.0" in text
    for word in ("inf", "nan", "1e400", "Infinity"):
        sent.recipe.write_text(text.replace("clip_norm = 1.0", f"clip_norm = {word}"))
        assert sent.train() == 2
        assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("number", ["1000000000000", "1" + "0" * 30])
def test_a_trillion_new_tokens_are_refused(number: str, capsys):
    from clearhead.cli import main

    given = ["shakespeare-char", "--prompt", "a", "--max-new", number]
    assert main(["generate", *given]) == 2
    assert "--max-new" in capsys.readouterr().err


def test_a_tokenizer_that_makes_its_library_panic_is_refused_in_a_model_folder(tmp_path: Path):
    from clearhead.text.train import train_bpe

    content = json.loads(train_bpe(["aa bb"] * 9, 270).to_json())
    content["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match="crashes its library"):
        open_tokenizer(tmp_path)
