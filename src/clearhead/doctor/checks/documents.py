"""Checks several documents that are packed into one row."""

from collections.abc import Iterator
from dataclasses import replace

import torch

from ..findings import Finding, NotApplicableError
from ..patient import Patient, change_size


def documents(patient: Patient) -> Iterator[Finding]:
    """A document in a row does not depend on the one before it, and gives the same logits as
    alone."""
    packed = patient.calls.packed
    if packed is None:
        raise NotApplicableError("no_documents")
    model, inputs = patient.specimen, patient.draw(patient.rows(2))
    n = patient.length // 2
    lengths = [n, patient.length - n]
    others = inputs.tokens.clone()
    others[:, :n] = patient.other_tokens(others[:, :n])
    with torch.no_grad():
        together = packed(model, inputs, lengths)
        behind_others = packed(model, replace(inputs, tokens=others), lengths)
        alone = [
            patient.logits(model, replace(inputs, tokens=tokens))
            for tokens in (inputs.tokens[:, :n], inputs.tokens[:, n:])
        ]
    change = change_size(together[:, n:], behind_others[:, n:])
    if change > patient.tolerance:
        yield Finding("documents.seen", "error", {"change": change})
        return
    change = change_size(torch.cat(alone, dim=1), together)
    if change > patient.tolerance:
        yield Finding("documents.differ", "note", {"change": change})
