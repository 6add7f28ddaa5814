"""Everybody sees how far a command has come, on a terminal and in a file, unless --quiet."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from clearhead.cli import main, progress
from clearhead.cli.console import TextConsole
from clearhead.config import recipe_toml
from clearhead.data.corpus import Corpus
from clearhead.training.report import read_metrics
from tests.training.small import PAIRS, TEXT, timeless, with_train

STEP = {"loss": 3.25, "lr": 0.001, "grad_norm": 1.0, "tokens_per_second": 1234.0}


def test_plain_lines_have_step_of_steps_loss_speed_time_left_and_next_checkpoint(
    capsys, monkeypatch
):
    clock = iter([10.0, 12.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    lines = progress._Lines(with_train(TEXT, steps=1000, log_every=3, save_every=100).train)
    for step in (1, 2, 3):
        lines.step({"step": step, **STEP})
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("step 3 of 1,000  loss 3.2500")
    assert line.endswith("1,234 tokens/s  16:37 left  checkpoint at 100")


def test_a_bar_has_the_same_facts():
    screen = io.StringIO()
    console = TextConsole()
    console.file, console._force_terminal = screen, True
    console.size = Console(width=120, height=20, file=screen).size
    bar = progress._Bar(console, with_train(TEXT, steps=1000, save_every=100).train)
    for step in range(1, 120):
        bar.step({"step": step, **STEP, "utilisation": 0.1})
    bar.close()
    shown = screen.getvalue()
    for fact in ("119/1,000", "loss 3.250", "1,234 tokens/s", "left  checkpoint at 200"):
        assert fact in shown


def test_the_next_checkpoint_is_never_behind_the_last_step():
    train = replace(TEXT.train, steps=250, save_every=100)
    steps = [progress.next_checkpoint(step, train) for step in (1, 99, 100, 200)]
    assert steps == [100, 100, 200, 250]
    assert progress.next_checkpoint(7, replace(train, save_every=0)) == 250


def written(recipe, folder: Path) -> str:
    path = folder / f"{recipe.name}.toml"
    path.write_text(recipe_toml(recipe), encoding="utf-8")
    return str(path)


def test_validations_show_what_a_language_model_writes_and_change_no_step(
    text: Corpus, tmp_path: Path, capsys
):
    plain = with_train(TEXT, steps=4, validate_every=2)
    shown = with_train(plain, sample_valid=2)
    for name, recipe in (("plain", plain), ("shown", shown)):
        where = ["--prepared", str(text.folder), "--folder", str(tmp_path / name)]
        assert main(["train", written(recipe, tmp_path), *where]) == 0
    out = capsys.readouterr().out
    assert out.count("  given       ") == 4 and out.count("  continues   ") == 4
    lines = [timeless(tmp_path / name) for name in ("plain", "shown")]
    for line in lines[1]:
        line.pop("samples", None)
    assert lines[0] == lines[1]
    last = read_metrics(tmp_path / "shown/metrics.jsonl")[-1]["samples"]
    assert len(last) == 2 and all(set(each) == {"given", "continues"} for each in last)


def test_validations_show_translations_without_sacrebleu(pairs: Corpus, tmp_path: Path, capsys):
    recipe = with_train(PAIRS, steps=2, validate_every=2, sample_valid=2)
    where = ["--prepared", str(pairs.folder), "--folder", str(tmp_path / "run")]
    assert main(["train", written(recipe, tmp_path), *where]) == 0
    out = capsys.readouterr().out
    assert out.count("  translation ") == 2 and "BLEU" not in out


@pytest.mark.parametrize("quiet", [False, True])
def test_quiet_silences_progress_and_nothing_else(
    quiet: bool, text: Corpus, tmp_path: Path, capsys, monkeypatch
):
    monkeypatch.setenv("CLEARHEAD_DATA", str(text.folder.parent))
    more = ["--quiet"] if quiet else []
    recipe = written(with_train(TEXT, steps=2), tmp_path)
    run = tmp_path / "run"
    where = ["--prepared", str(text.folder), "--folder", str(run)]
    assert main(["train", recipe, *where, *more]) == 0
    assert bool(capsys.readouterr().out) is not quiet
    assert main(["train", recipe, *where, "--train.steps", "3", *more]) == 0
    said = capsys.readouterr()
    assert "warning: from here on train.steps was 2, is 3" in said.out + said.err
    assert main(["evaluate", str(run), "--split", "valid", *more]) == 0
    said = capsys.readouterr()
    assert "perplexity per token" in said.out
    assert ("reading valid of" in said.err) is not quiet
