"""Checks that a model takes every length that it says it takes."""

from collections.abc import Iterator

import torch
from torch import nn

from ..calls import CallInputs
from ..findings import Finding, NotApplicableError
from ..form import CALL_ERRORS
from ..patient import Patient

# Longer limits are believed: trying them costs quadratic time and memory.
_LONGEST_TRIED = 2048


def lengths(patient: Patient) -> Iterator[Finding]:
    """The model takes one token, and source and target of different lengths, either of them
    longer."""
    if patient.exact_length is not None:
        yield Finding("lengths.exact", "note", {"length": patient.exact_length})
        return
    if patient.equal_lengths:
        other = patient.length - 3
        error = _error(patient, patient.draw(2, patient.length, other))
        if error is not None:
            numbers = {"target": patient.length, "source": other, "error": error}
            yield Finding("lengths.source_target", "error", numbers)
    for length, source in ((1, patient.source_length), (patient.source_length, patient.length)):
        source = length if patient.equal_lengths else source
        error = _error(patient, patient.draw(2, length, source))
        if error is not None:
            case = "one" if length == 1 else "source_target"
            numbers = {"target": length, "source": source, "error": error}
            yield Finding(f"lengths.{case}", "error", numbers)


def limit(patient: Patient) -> Iterator[Finding]:
    """The longest sequence works, and one token more raises a clear error."""
    limit = patient.max_length
    if limit is None:
        raise NotApplicableError("no_limit")
    if limit > _LONGEST_TRIED:
        raise NotApplicableError("long_limit")
    error = _error(patient, patient.draw(1, limit, limit))
    if error is not None and (behind := _padding_rows(patient, limit)):
        limit -= behind
        error = _error(patient, patient.draw(1, limit, limit))
    if error is not None:
        yield Finding("limit.at", "error", {"limit": limit, "error": error})
        return
    error = _error(patient, patient.draw(1, limit + 1, limit))
    if error is not None and error.startswith(("IndexError", "RuntimeError")):
        yield Finding("limit.beyond", "note", {"limit": limit, "error": error})


def _padding_rows(patient: Patient, limit: int) -> int:
    """Return how many rows of a table of positions are not for positions: those up to the padding
    row, as in RoBERTa."""
    tables = (m for m in patient.model.modules() if isinstance(m, nn.Embedding))
    rows = [
        t.padding_idx + 1 for t in tables if t.num_embeddings == limit and t.padding_idx is not None
    ]
    return max(rows, default=0)


def _error(patient: Patient, inputs: CallInputs) -> str | None:
    try:
        with torch.no_grad():
            patient.logits(patient.plain, inputs)
    except CALL_ERRORS as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return None
