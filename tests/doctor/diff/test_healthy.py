"""No departure is reported where there is none."""

from pathlib import Path

import pytest

from clearhead.doctor.diff import diff
from tests.doctor.diff.healthy import NAMES, QUICK, pair


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in NAMES],
)
def test_programs_that_compute_the_same_are_not_accused(name: str, tmp_path: Path):
    reference, port, how = pair(name, tmp_path)
    report = diff(reference, port, **how)
    assert report.same, str(report)
    assert report.departures == []


def test_there_are_sixty_pairs_and_more():
    assert len(set(NAMES)) >= 60 and set(QUICK) <= set(NAMES)
