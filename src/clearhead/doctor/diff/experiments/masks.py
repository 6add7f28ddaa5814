"""Experiments for a mask that hides other positions."""

from itertools import product

import torch
from torch import Tensor

from ...form import CALL_ERRORS
from ..evidence import Cause, Evidence
from ..operations import SourceLine
from ..replaying import CannotReplayError, ChangedValues, Replay

_HUGE = 1e8
_LOW = -1000
_COMPARES = ("lt", "le", "gt", "ge", "eq", "ne")


def another_mask(evidence: Evidence) -> Cause | None:
    """Test whether the scores are common, and hiding what the reference hides makes the results
    equal."""
    if evidence.cut.kind not in ("replace", "insert", "bypass"):
        return None
    own, wanted = evidence.own, evidence.wanted
    if own.dim() < 2:
        return None
    if not evidence.s.operations[evidence.at].from_tokens and _is_flag(own) and _is_flag(wanted):
        return Cause("mask", _where(own != wanted)) if _hides(evidence) else None
    hidden, theirs = ~(own.abs() < _HUGE), ~(wanted.abs() < _HUGE)
    if not bool((hidden ^ theirs).any()):
        if not _are_weights(own, wanted):
            return None
        hidden, theirs = own == 0, wanted == 0  # behind the softmax
        if not bool((hidden ^ theirs).any()):
            return None
    elif not _agrees_elsewhere(evidence, own, wanted, hidden | theirs):
        return None
    return Cause("mask", _where(hidden ^ theirs), _where_compared(evidence, theirs))


def _hides(evidence: Evidence) -> bool:
    """Tell whether the reference's table hides other scores than the port's: not every table of two
    values is a mask."""
    try:
        made = evidence.s.replay.change(evidence.cut.change)
    except (CannotReplayError, *CALL_ERRORS):
        return False
    for index, tensor in made.items():
        if index == evidence.at or not tensor.is_floating_point():
            continue
        before = evidence.s.replay.value(index)
        hidden = [t < _LOW for t in (before, tensor)]
        if evidence.s.operations[index].from_tokens:
            hidden = [h | (t == 0) for h, t in zip(hidden, (before, tensor))]
        if not torch.equal(*hidden):
            return True
    return False


def _where_compared(evidence: Evidence, wanted: Tensor) -> tuple[SourceLine, ...]:
    """Return the line that compares positions with a number, if changing the number by one hides
    what the reference hides."""
    operations, end = evidence.s.operations, evidence.cut.index
    tables = {i for o in evidence.region for i in o.inputs if not operations[i].from_tokens}
    tables = {i for i in tables if len(operations[i].shape) > 1}
    makers = sorted({i for table in tables for i in evidence.makers(table)})
    compared = [operations[i] for i in makers if operations[i].name in _COMPARES]
    if not compared:
        return ()
    replay = Replay(evidence.s.port, evidence.s.matching.port, makers, end)
    for operation in compared:
        for number, step in product(operation.scalars, (-1, 1)):
            change = ChangedValues(scalars={operation.call: (number, number + step)})
            try:
                made = replay.change(change, stop_after=end)
            except (CannotReplayError, *CALL_ERRORS):
                return ()
            found = made.get(end)
            if found is not None and found.numel() == wanted.numel():
                hidden = ~(found.abs() < _HUGE) if found.dtype != torch.bool else found
                if torch.equal(hidden.reshape(wanted.shape), wanted):
                    return operation.lines[:1]
    return ()


def _is_flag(table: Tensor) -> bool:
    """Tell whether a table for queries and keys holds only zeros and ones, or zeros and a large
    negative number."""
    if table.dim() < 2 or table.shape[-1] < 2:
        return False
    values = table.unique().tolist()
    return len(values) <= 2 and all(value in (0, 1) or value < _LOW for value in values)


def _are_weights(own: Tensor, wanted: Tensor) -> bool:
    return all(
        bool((t >= 0).all()) and bool(((t.sum(dim=-1) - 1).abs() < 1e-6).all())
        for t in (own, wanted)
    )


def _agrees_elsewhere(evidence: Evidence, own: Tensor, wanted: Tensor, either: Tensor) -> bool:
    """Tell whether the scores are equal where neither program hides them."""
    size = float(wanted.masked_fill(either, 0.0).abs().max()) or 1.0
    difference = (own - wanted).masked_fill(either, 0.0).abs().max()
    return float(difference) <= max(evidence.bound, 1e-9) * size


def _where(wrong: Tensor) -> dict[str, object]:
    """Return how many positions differ; for square masks also on which diagonals (query minus
    key)."""
    facts: dict[str, object] = {"n": int(wrong.sum()), "of": wrong.numel()}
    first = wrong.nonzero()[0].tolist()
    facts["query"], facts["key"] = first[-2], first[-1]
    rows, columns = wrong.shape[-2:]
    if rows == columns:
        flat = wrong.reshape(-1, rows, columns).any(dim=0)
        offsets = torch.arange(rows)[:, None] - torch.arange(columns)[None, :]
        diagonals = sorted({int(d) for d in offsets[flat]})
        facts["diagonals"] = diagonals
    return facts
