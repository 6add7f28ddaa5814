"""The command line, as a shell sees it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len

from clearhead.cli import VERBS, main
from clearhead.config import load_recipe


def clearhead(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "clearhead", *arguments], capture_output=True, text=True
    )


def test_without_a_verb_it_lists_the_verbs_in_80_columns():
    for run in (clearhead(), clearhead("--help")):
        assert run.returncode == 0
        assert "describe" in run.stdout
        assert all(len(line) <= 80 for line in run.stdout.splitlines())


def test_a_mistyped_verb_suggests_the_nearest():
    run = clearhead("descibe")
    assert run.returncode == 2
    assert run.stderr == "clearhead: there is no command 'descibe'; did you mean 'describe'?\n"


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_fits_in_80_columns(verb: str, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as ended:
        main([verb, "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: clearhead {verb} ")
    assert [line for line in shown.splitlines() if cell_len(line) > 80] == []


def test_the_help_imports_nothing_heavy():
    code = "import sys; from clearhead.cli import main; main(['--help']); print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    modules = set(run.stdout.splitlines()[-1].split())
    assert "clearhead.cli" in modules
    assert not modules & {"torch", "numpy", "tokenizers", "rich", "jsonargparse", "transformers"}


def test_translating_imports_neither_compiler_nor_checkpoints():
    """Together they would take as long as torch itself."""
    code = "import sys; from clearhead.cli import main; main(['translate', 'copy-task'])"
    code += "; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], input="a", capture_output=True, text=True)
    modules = set(run.stdout.splitlines()[-1].split())
    assert "torch" in modules
    assert not modules & {"torch._dynamo", "torch.distributed.checkpoint", "sympy", "transformers"}


@pytest.mark.parametrize(
    ("arguments", "what_to_do"),
    [
        (["trian", "copy-task"], "did you mean 'train'?"),
        (["train", "copytask"], "did you mean 'copy-task'?"),
        (["train", "copy-task", "--train.step", "5"], "did you mean '--train.steps'?"),
        (["prepare", "multi30k-de-en"], "get it with: clearhead data get multi30k"),
        (["prepare", "copy-task"], "get it with: clearhead data get copy-task"),
        (["train", "copy-task"], "get it with: clearhead data get copy-task"),
        (["data", "copy-task"], "make it with: clearhead prepare copy-task"),
        (["data", "copy-task", "--out", "x"], "clearhead prepare copy-task --out x"),
        (["translate", "runs/copy-task/model"], "clearhead train copy-task"),
        (["generate", "elsewhere"], "clearhead train RECIPE"),
        (["runs"], "make a run with: clearhead train RECIPE"),
        (["train", "copy-task", "--part", "norm"], "write --part norm=FILE.py:NAME"),
        (["selftest", "--device", "cpu:x"], "--device cpu:x is not a device"),
        (["learn", "report", ".", "--csv", "x/y.csv"], "x/y.csv cannot be used (No such file"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_missing_or_mistyped_is_answered_with_what_to_do(
    arguments: list[str], what_to_do: str, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLEARHEAD_DATA", str(tmp_path))
    assert main(arguments) == 2
    assert what_to_do in capsys.readouterr().err


def test_describe_explains_a_recipe_as_it_would_run(tmp_path: Path):
    run = clearhead("describe", "copy-task", "--train.steps", "7")
    (tmp_path / "copy-task.toml").write_text(run.stdout, encoding="utf-8")
    expected = load_recipe("copy-task", [("train.steps", "7")])
    assert load_recipe(str(tmp_path / "copy-task.toml")) == expected
    explained = "steps = 7                     # Number of updates of the weights. Default: 1000."
    assert explained in run.stdout


def test_describe_lists_presets_and_shows_one(capsys: pytest.CaptureFixture[str]):
    assert main(["describe"]) == main(["describe", "gpt2"]) == 0
    said = capsys.readouterr().out
    listed = map(str.split, said.splitlines())
    assert ["llama-3-70b", "decoder", "70,553,706,496", "parameters"] in listed
    assert "parameters            124,439,808" in said
    assert "without embeddings    85,056,000" in said


def test_describe_changes_a_preset_or_refuses(capsys: pytest.CaptureFixture[str]):
    assert main(["describe", "gpt2", "--model.n_layers", "2"]) == 0
    assert "n_layers              2\n" in capsys.readouterr().out
    assert main(["describe", "gpt2", "--train.steps", "7"]) == 2
    assert main(["describe", "--model.n_layers", "2"]) == 2
    assert "is for recipes, but none is named; leave it out" in capsys.readouterr().err


def test_a_mistyped_preset_suggests_the_nearest(capsys: pytest.CaptureFixture[str]):
    assert main(["describe", "gpt-2", "--train.steps", "7"]) == 2
    said, complaint = capsys.readouterr()
    assert said == ""
    assert complaint == "clearhead: there is no recipe or preset 'gpt-2'; did you mean 'gpt2'?\n"


@pytest.mark.parametrize("verb", [["train"], ["study", "run"]])
def test_the_home_of_nobody_is_no_file(verb: list[str], capsys: pytest.CaptureFixture[str]):
    assert main([*verb, "~nobody-of-that-name/x.toml"]) == 2
    assert "there is no" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_output_on_a_full_disk_is_one_line_and_exit_code_2():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "clearhead", "describe", "copy-task"]
        run = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert run.returncode == 2
    assert run.stderr == "clearhead: the disk is full; free some space and run again\n"


@pytest.mark.slow
def test_a_verb_that_writes_files_outlives_its_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As after `clearhead prepare … &` and a closed ssh."""
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    recipe = '[data]\ntrain = ["a.txt"]\nvocab_size = 300\nheld_out = 0.3\n'
    (tmp_path / "mine.toml").write_text(recipe)
    monkeypatch.setenv("CLEARHEAD_DATA", str(tmp_path))
    ours, theirs = os.openpty()
    os.close(ours)  # nobody is there any more: writing is an error
    command = [sys.executable, "-m", "clearhead", "prepare", "mine.toml"]
    run = subprocess.run(command, cwd=tmp_path, stdout=theirs, stderr=subprocess.PIPE, text=True)
    os.close(theirs)
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "prepared/mine/manifest.json").is_file()


@pytest.mark.parametrize("what", ["from clearhead import build_model, Recorder"])
def test_importing_is_silent_and_costs_little_beyond_torch(what: str):
    """In seconds of processor time, which a busy machine does not stretch."""
    code = f"import time, torch; t = time.process_time(); {what}; t = time.process_time() - t"
    command = [sys.executable, "-c", f"{code}; assert t < 0.3, t"]
    # The first of them compiles what was never imported before.
    tries = (subprocess.run(command, capture_output=True, text=True) for _ in range(3))
    assert any((run.returncode, run.stdout, run.stderr) == (0, "", "") for run in tries)


def test_a_reader_that_leaves_early_ends_every_verb_without_a_word():
    command = [sys.executable, "-m", "clearhead", "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 128 + signal.SIGPIPE


@pytest.mark.skipif(sys.platform == "win32", reason="a shell closes the output")
@pytest.mark.parametrize("words", ["--version >&-", "translate copy-task <&-"])
@pytest.mark.slow
def test_input_or_output_that_is_closed_from_the_start_is_no_error(words: str):
    command = ["sh", "-c", f'"{sys.executable}" -m clearhead {words}']
    run = subprocess.run(command, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")
