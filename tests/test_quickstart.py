"""The tour, as somebody takes it on the first day."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clearhead.cli import main
from tests.signals import listen_to_ctrl_c

COMMANDS = ["data get", "prepare", "train", "evaluate", "export", "translate"]


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "clearhead", "quickstart", "tour", *options],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name != "CLEARHEAD_DATA"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=listen_to_ctrl_c,
        start_new_session=True,  # a group of its own, as a terminal's Ctrl-C finds it
    )


@pytest.mark.slow
def test_the_tour_is_interrupted_resumes_and_ends_with_a_picture(tmp_path: Path):
    pytest.importorskip("transformers", reason="the tour's export needs the extra hf")
    first = start(tmp_path)
    steps = tmp_path / "tour/runs/copy-task/metrics.jsonl"
    while first.poll() is None and not (steps.exists() and steps.stat().st_size):
        time.sleep(0.05)
    os.killpg(first.pid, signal.SIGINT)
    _, told = first.communicate()
    assert first.returncode == 128 + signal.SIGINT
    assert told.endswith("interrupted; to resume the tour: clearhead quickstart tour\n")
    assert "Traceback" not in told

    shown, told = start(tmp_path, "--steps", "150").communicate()
    assert "Traceback" not in told
    commands = [line for line in shown.splitlines() if line.startswith("$ ")]
    assert commands[0] == "$ cd tour && export CLEARHEAD_DATA=data"
    for command, expected in zip(commands[1:], COMMANDS, strict=True):
        assert f"clearhead {expected} " in command
    for expected in ("resuming after step", "exact ", "agree ", "Where to go next"):
        assert expected in shown
    assert "cross-attention" in told, "the picture is on the terminal, too"
    assert (tmp_path / "tour/attention.svg").read_text(encoding="utf-8").startswith("<svg")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tour"]

    again = start(tmp_path)
    _, told = again.communicate()
    assert again.returncode == 2 and "the tour in tour is finished; name a new folder" in told


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path, capsys):
    (tmp_path / "mine.txt").write_text("dear to me\n")
    assert main(["quickstart", str(tmp_path)]) == 2
    assert "is not empty; name a new folder" in capsys.readouterr().err
    assert main(["quickstart", str(tmp_path / "mine.txt")]) == 2
    assert "is a file; name a new folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.slow
def test_a_command_that_fails_ends_the_tour_with_what_to_do(tmp_path: Path, capfd):
    folder = tmp_path / "tour"
    folder.mkdir()
    (folder / ".quickstart").write_text("begun\n")
    (folder / "data").write_text("a file where a folder should be")
    for options in ([], ["--steps", "7"]):
        assert main(["quickstart", str(folder), *options]) != 0
        told = capfd.readouterr().err
        again = " ".join(["clearhead quickstart", str(folder), *options])
        assert "the tour stops" in told and f"resume the tour: {again}\n" in told
