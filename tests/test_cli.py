"""The command line, as a shell sees it."""

import subprocess
import sys

import pytest


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
    assert run.stderr == "clearhead: there is no verb 'descibe'; did you mean 'describe'?\n"


def test_describe_lists_presets_and_shows_one():
    listed = clearhead("describe").stdout.splitlines()
    assert ["llama-3-70b", "decoder", "70,553,706,496", "parameters"] in map(str.split, listed)
    one = clearhead("describe", "gpt2").stdout
    assert "parameters            124,439,808" in one
    assert "without embeddings    85,056,000" in one


def test_a_mistyped_preset_suggests_the_nearest():
    run = clearhead("describe", "gpt-2")
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == "clearhead: there is no preset 'gpt-2'; did you mean 'gpt2'?\n"


@pytest.mark.parametrize(
    "what", ["import clearhead", "from clearhead import build_model, Recorder"]
)
def test_importing_is_silent_and_costs_little_beyond_torch(what: str):
    """In seconds of processor time, which a busy machine does not stretch."""
    code = f"import time, torch; t = time.process_time(); {what}; t = time.process_time() - t"
    run = subprocess.run(
        [sys.executable, "-c", f"{code}; assert t < 0.3, t"], capture_output=True, text=True
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
