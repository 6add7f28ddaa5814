"""A real `clearhead prepare`, killed with SIGKILL at random moments, ends with the same bytes."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_corpora import sentence

from clearhead.data.manifest import VERIFIED

RECIPE = """
[data]
format = "text"
train = ["text"]
vocab_size = 400
shard_mb = 1
skip = ["blank"]
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    (tmp_path / "text").mkdir()
    for file in range(3):
        lines = [sentence(file + n, 1 + n * n % 23) + "\n" * (n % 5 == 0) for n in range(20_000)]
        (tmp_path / f"text/{file}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "recipe.toml").write_text(RECIPE)
    return tmp_path / "recipe.toml"


def start(recipe: Path, out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "clearhead", "prepare", str(recipe)]
    return subprocess.Popen(
        [*command, "--out", str(out), "--processes", "2"],
        env=os.environ | {"CLEARHEAD_DATA": str(recipe.parent)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != VERIFIED
    }


def children(process: int) -> list[int]:
    path = Path(f"/proc/{process}/task/{process}/children")
    return [int(each) for each in path.read_text().split()] if path.exists() else []


def is_running(process: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def kill_at_random_moments(recipe: Path, n: int) -> None:
    """Each time in a new folder: a run that is killed, then one that is not."""
    began = time.monotonic()
    assert start(recipe, recipe.parent / "whole").wait() == 0
    duration = time.monotonic() - began
    whole = contents(recipe.parent / "whole")
    assert sum(name.endswith(".ds") for name in whole) >= 3
    chance = random.Random(n)
    n_killed = 0
    for attempt in range(4 * n):
        out = recipe.parent / f"killed-{attempt}"
        process, began = start(recipe, out), time.monotonic()
        try:
            process.wait(timeout=chance.uniform(0.2, 1.0) * duration)
            duration = time.monotonic() - began  # it was faster than the first: the next is too
            continue
        except subprocess.TimeoutExpired:
            workers = children(process.pid)
            process.send_signal(signal.SIGKILL)
        if process.wait() != -signal.SIGKILL:
            continue  # it ended in that very moment
        assert start(recipe, out).wait() == 0
        assert contents(out) == whole
        assert not any(is_running(worker) for worker in workers)
        n_killed += 1
        if n_killed == n:
            return
    pytest.fail(f"only {n_killed} of {n} runs were still going when they were to be killed")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads /proc")
def test_a_killed_prepare_ends_with_the_same_bytes(recipe: Path):
    kill_at_random_moments(recipe, 3)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads /proc")
def test_thirty_kills_leave_no_trace(recipe: Path):
    kill_at_random_moments(recipe, 30)
