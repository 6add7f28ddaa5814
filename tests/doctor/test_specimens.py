"""Every defect is named, in its place; its healthy twin is left in peace."""

from typing import Any

import pytest
import torch

from clearhead.doctor import Examination, examine
from tests.doctor.specimens import around, attentions, inside, layers, pairs, serving, uses
from tests.doctor.specimens.specimen import Specimen

ROOMS = (around, attentions, layers, uses, pairs, inside, serving)
SPECIMENS = [specimen for room in ROOMS for specimen in room.SPECIMENS]
# The rows of our list of tutorial defects that show in behaviour.
BEHAVIOURAL = {1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 22, 23, 25, 26, 28, 29, 30, 31}
# Slow checks are made where they are what finds the defect.
# What only the edge of an interface shows is a note.
EDGES = {
    "temperature.zero",
    "top_k.zero",
    "top_k.large",
    "past_the_limit.crash",
    "ignored_targets.none_left",
    "dtypes.weights",
    "dtypes.mixed",
    "greedy.train",
    "returned_weights.train",
}
SLOW = {"overfits", "knows_the_future", "compiles"}


def report_on(build, specimen: Specimen, **how: Any) -> Examination:
    torch.manual_seed(0)
    model = build()
    calls = getattr(type(model), "calls", None)
    return examine(model, kind=specimen.kind, calls=calls, **specimen.how, **how)


@pytest.mark.parametrize("specimen", SPECIMENS, ids=lambda s: s.name)
def test_a_defect_is_named_in_its_place(specimen: Specimen):
    # Checks are independent of each other, and all of them look at the healthy twin below.
    report = report_on(specimen.ill, specimen, only=[specimen.check])
    found = [finding for finding in report.findings if finding.case == specimen.case]
    assert found, report.findings
    if specimen.case not in EDGES:
        assert any(finding.severity != "note" for finding in found), found
    if specimen.place is not None:
        assert specimen.place in [finding.place for finding in found]


TWINS: dict[str, Examination] = {}


@pytest.mark.parametrize("specimen", SPECIMENS, ids=lambda s: s.name)
@pytest.mark.slow
def test_a_healthy_twin_is_left_in_peace(specimen: Specimen):
    slow = specimen.check in SLOW
    # Many specimens have the same twin, which is examined once.
    twin = f"{specimen.twin} {specimen.kind} {specimen.how} {slow}"
    if twin not in TWINS:
        TWINS[twin] = report_on(specimen.twin, specimen, quick=not slow)
    report = TWINS[twin]
    assert report.healthy, report.findings
    assert not [o for o in report.outcomes if o.status == "could not run"]


def test_every_behavioural_defect_of_the_list_has_a_specimen():
    assert {s.errata for s in SPECIMENS} - {None} == BEHAVIOURAL


def test_there_are_specimens_of_every_kind():
    kinds = [specimen.kind for specimen in SPECIMENS]
    assert len(kinds) >= 40
    assert min(kinds.count(kind) for kind in set(kinds)) >= 8
    assert len(set(kinds)) == 3
