"""Checks that the sequences of a batch do not affect each other, in evaluation and in training."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from ..attention_trace import operations_in
from ..calls import CallInputs
from ..findings import Finding, NotApplicableError
from ..patient import Patient, change_size
from ..witness import Visit, differs, first_change, watch

_N_ROWS = 4
# The row that is asked about, behind all others, and the one that it changes places with.
_ROW, _OTHER = 3, 1
# By which experts are chosen and their places are counted.
_ROUTING = {"topk", "argmax", "sort", "bincount", "nonzero", "cumsum"}


@dataclass(frozen=True)
class Company:
    """The effect of other sequences in the batch on the logits of one sequence."""

    mode: Literal["eval", "train"]
    change: float
    """How much the logits change between a sequence alone and the sequence in a batch."""
    by_others: bool
    """True if the logits change with the tokens of other rows."""
    by_row: bool
    """True if the logits change when the sequence is in another row, among the same sequences."""
    along_the_batch: bool
    """True if one token affects its own position in other rows, and no other position of its own
    row."""
    place: str | None
    """The first module whose output changes with the tokens of other rows only; if these do not
    matter, the first module that returns different numbers for equal rows."""
    module: nn.Module | None
    operations: frozenset[str]
    """The names of the operations in that module itself."""


def batch(patient: Patient) -> Iterator[Finding]:
    """A sequence gives the same logits alone and among others."""
    if patient.rows(_N_ROWS) < _N_ROWS:
        raise NotApplicableError("few_rows")
    for mode in ("eval", "train"):
        company = _company(patient, mode)
        if company is not None:
            numbers = {"change": company.change}
            yield Finding(f"batch.{mode}", "error", numbers, company.place, origin=_origin(company))
            return


def _origin(company: Company) -> str | None:
    """Return what in the model mixes the rows."""
    if company.along_the_batch:
        return "axis"
    if company.module is not None and hasattr(company.module, "running_mean"):
        return "batch_norm"
    if company.operations & _ROUTING:
        return "experts"
    return "positions" if company.by_row and not company.by_others else None


def _company(patient: Patient, mode: Literal["eval", "train"]) -> Company | None:
    """Return the effect of the company; None if there is none, or if the model is random, which
    another check reports."""
    model = patient.specimen if mode == "eval" else patient.in_training
    among = patient.draw(_N_ROWS)
    others = [_with_other_rows(patient, among, seed) for seed in (1, 2, 3)]
    with torch.no_grad():
        together, again = patient.logits(model, among), patient.logits(model, among)
        if not torch.equal(together[_ROW], again[_ROW]):
            return None
        alone = patient.logits(model, among.rows(slice(_ROW, _ROW + 1)))
        change = change_size(together[_ROW : _ROW + 1], alone)
        if not change > patient.tolerance:
            return None
        rows = list(range(_N_ROWS))
        rows[_ROW], rows[_OTHER] = rows[_OTHER], rows[_ROW]
        moved = patient.logits(model, among.rows(rows))[_OTHER]
        moving = (given for given in others if _moves(patient, model, given, together))
        mover = next(moving, None)
    place = _where_rows_meet(patient, model, among, mover)
    operations: set[str] = set()
    if place is not None:
        operations = operations_in(model, place, lambda: patient.logits(model, among))
    return Company(
        mode=mode,
        change=change,
        by_others=mover is not None,
        by_row=differs(together[_ROW], moved, patient.tolerance),
        along_the_batch=_runs_along_the_batch(patient, model, among, together),
        place=place,
        module=None if place is None else model.get_submodule(place),
        operations=frozenset(operations),
    )


def _with_other_rows(patient: Patient, inputs: CallInputs, seed: int) -> CallInputs:
    """Return inputs with the same sequence in its row, and other sequences around it."""
    others = patient.draw(_N_ROWS, seed=seed)
    others.tokens[_ROW] = inputs.tokens[_ROW]
    if others.source is not None and inputs.source is not None:
        others.source[_ROW] = inputs.source[_ROW]
    return others


def _moves(patient: Patient, model: nn.Module, inputs: CallInputs, logits: Tensor) -> bool:
    """Tell whether the sequence gets other logits in the company of these inputs."""
    return differs(logits[_ROW], patient.logits(model, inputs)[_ROW], patient.tolerance)


def _where_rows_meet(
    patient: Patient, model: nn.Module, among: CallInputs, others: CallInputs | None
) -> str | None:
    def watched(inputs: CallInputs) -> list[Visit]:
        with torch.no_grad():
            return watch(model, lambda: patient.logits(model, inputs))

    def row_moved(one: Tensor, other: Tensor) -> bool:
        return len(one) == _N_ROWS and differs(one[_ROW], other[_ROW], patient.tolerance)

    def rows_differ(one: Tensor, _: Tensor) -> bool:
        return len(one) == _N_ROWS and differs(one[_ROW], one[_OTHER], patient.tolerance)

    if others is not None:
        return first_change(watched(among), watched(others), row_moved)
    equal = watched(among.rows([_ROW] * _N_ROWS))
    return first_change(equal, equal, rows_differ)


def _runs_along_the_batch(
    patient: Patient, model: nn.Module, inputs: CallInputs, logits: Tensor
) -> bool:
    """Tell whether attention mistakes the batch axis for the length axis. The first row is changed,
    which all rows would see, even under a causal mask."""
    column = patient.length // 2
    tokens = inputs.tokens.clone()
    tokens[0, column] = patient.other_tokens(tokens[0, column])
    with torch.no_grad():
        changed = patient.logits(model, replace(inputs, tokens=tokens))
    size = patient.tolerance * logits.double().square().mean().sqrt()
    moved = (logits - changed).double().abs().amax(dim=-1) > size
    elsewhere = moved.clone()
    elsewhere[:, column] = False
    moved[0] = False
    return bool(moved[:, column].any()) and not bool(elsewhere.any())
