"""Sequences side by side must not know of each other, in evaluation and in training."""

from collections.abc import Iterator

import torch
from torch import nn

from clearhead.doctor.findings import Finding, NotApplicableError
from clearhead.doctor.patient import Patient, change_size
from clearhead.doctor.witness import differs, first_change, watch


def batch(patient: Patient) -> Iterator[Finding]:
    """A sequence alone and among others."""
    if patient.rows(4) < 4:
        raise NotApplicableError("few_rows")
    for mode in ("eval", "train"):
        model = patient.specimen if mode == "eval" else patient.in_training
        among, alone = patient.draw(4), patient.draw(4).rows(slice(1, 2))
        with torch.no_grad():
            one = patient.logits(model, among)[1:2]
            if change_size(one, patient.logits(model, among)[1:2]) > 0:
                continue  # chance is at work: another check says where
            change = change_size(one, patient.logits(model, alone))
        if change > patient.tolerance:
            yield Finding(f"batch.{mode}", "error", {"change": change}, _place(patient, model))
            return


def _place(patient: Patient, model: nn.Module) -> str | None:
    """The first module whose output changes when only the other rows of the batch change."""
    inputs, others = patient.draw(4), patient.draw(4, seed=1)
    others.tokens[1] = inputs.tokens[1]
    if others.source is not None and inputs.source is not None:
        others.source[1] = inputs.source[1]
    with torch.no_grad():
        before = watch(model, lambda: patient.logits(model, inputs))
        after = watch(model, lambda: patient.logits(model, others))

    def row_moved(one: torch.Tensor, other: torch.Tensor) -> bool:
        return len(one) == 4 and differs(one[1], other[1], patient.tolerance)

    return first_change(before, after, row_moved)
