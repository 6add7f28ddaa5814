"""Bugs of real ports, rebuilt small from the threads whose addresses are in `history`."""

import json
from pathlib import Path

import pytest

from tests.doctor.diff.pairs import run_pair

HISTORY = Path(__file__).parent / "history"
FOLDERS = sorted(path.parent for path in HISTORY.glob("*/expected.json"))


def test_there_are_twelve_and_each_has_an_address():
    addresses = [json.loads((f / "expected.json").read_text("utf-8"))["address"] for f in FOLDERS]
    assert len(set(addresses)) >= 12 and all("github.com" in address for address in addresses)


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_bug_that_somebody_had_is_found_and_named(folder: Path):
    found = run_pair(folder)
    assert [(bug["located"], bug["named"]) for bug in found["bugs"]] == [(True, True)], found
    assert found["wrong causes"] == 0 and found["elsewhere"] == []
