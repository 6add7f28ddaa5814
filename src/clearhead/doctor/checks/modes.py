"""Checks that training and evaluation compute the same, apart from what is random."""

from collections.abc import Iterator

import torch
from torch import Tensor

from ..findings import Finding, NotApplicableError
from ..patient import Patient, change_size
from ..witness import differs, first_change, watch


def modes(patient: Patient) -> Iterator[Finding]:
    """With dropout off, training mode gives the logits of evaluation mode."""
    training, inputs = patient.in_training, patient.draw(4)
    with torch.no_grad():
        one, other = patient.logits(training, inputs), patient.logits(training, inputs)
        if not torch.equal(one, other):
            raise NotApplicableError("chance_in_training")
        change = change_size(patient.logits(patient.specimen, inputs), one)
        if not change > patient.tolerance:
            return
        before = watch(patient.specimen, lambda: patient.logits(patient.specimen, inputs))
        after = watch(training, lambda: patient.logits(training, inputs))

    def moved(one: Tensor, other: Tensor) -> bool:
        return differs(one, other, patient.tolerance)

    place = first_change(before, after, moved)
    yield Finding("modes.differ", "warning", {"change": change}, place=place)
