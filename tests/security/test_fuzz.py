"""150 changed folders and files, and a thousand new ones, every night (`.ci/nightly`)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.__main__ import GOOD, Outcome

CASES = 150  # fewer do not reach every kind of file
ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_what_was_changed_is_refused_or_read(tmp_path: Path):
    """Forked from a process of its own, in which everything is imported."""
    log = tmp_path / "log.jsonl"
    command = [sys.executable, "-m", "tests.fuzz", "--cases", str(CASES), "--log", str(log)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found = [Outcome(*json.loads(line)) for line in log.read_text().splitlines()]
    assert len(found) == CASES
    assert [outcome for outcome in found if outcome.kind not in GOOD] == []
    targets = {"tokenizer", "recipe", "data", "model", "run", "prepared", "study"}
    for kind in GOOD:
        of_kind = {outcome.target for outcome in found if outcome.kind == kind}
        assert len(targets - of_kind) <= 1, f"of {targets - of_kind} nothing is {kind}"
