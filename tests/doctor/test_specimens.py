"""Every defect is named, in its place; its healthy twin is left in peace."""

import pytest
import torch

from clearhead.doctor import Report, examine
from tests.doctor.specimens import attentions, inside, layers, pairs, serving, uses
from tests.doctor.specimens.specimen import Specimen

ROOMS = (attentions, layers, uses, pairs, inside, serving)
SPECIMENS = [specimen for room in ROOMS for specimen in room.SPECIMENS]
# The rows of our list of tutorial defects that show in behaviour.
BEHAVIOURAL = {1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 22, 23, 25, 26, 28, 29, 30, 31}
# Slow checks are made where they are what finds the defect.
SLOW = {"overfits", "knows_the_future", "compiles"}


def report_on(build, specimen: Specimen) -> Report:
    torch.manual_seed(0)
    model = build()
    slow = specimen.case.partition(".")[0] in SLOW
    calls = getattr(type(model), "calls", None)
    return examine(model, kind=specimen.kind, quick=not slow, calls=calls, **specimen.how)


@pytest.mark.parametrize("specimen", SPECIMENS, ids=lambda s: s.name)
def test_a_defect_is_named_in_its_place(specimen: Specimen):
    report = report_on(specimen.ill, specimen)
    places = [finding.place for finding in report.findings if finding.case == specimen.case]
    assert places, report.findings
    if specimen.place is not None:
        assert specimen.place in places


@pytest.mark.parametrize("specimen", SPECIMENS, ids=lambda s: s.name)
def test_a_healthy_twin_is_left_in_peace(specimen: Specimen):
    report = report_on(specimen.twin, specimen)
    assert report.healthy, report.findings
    assert not [o for o in report.outcomes if o.status == "could not run"]


def test_every_behavioural_defect_of_the_list_has_a_specimen():
    assert {s.errata for s in SPECIMENS} - {None} == BEHAVIOURAL


def test_there_are_specimens_of_every_kind():
    kinds = [specimen.kind for specimen in SPECIMENS]
    assert len(kinds) >= 40
    assert min(kinds.count(kind) for kind in set(kinds)) >= 8
    assert len(set(kinds)) == 3
