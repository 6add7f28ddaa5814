"""Experiments for another number in the port's own operations: a scale, an epsilon, a power, a
base."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from ..evidence import Cause, Evidence
from ..operations import LOW, Operation
from ..replaying import ChangedValues

_TRIALS = 60
_SUMS = 4


def another_number(evidence: Evidence) -> Cause | None:
    """Test whether the two agree if one number of the port is changed to a number of the reference,
    or to the number that follows from the ratio of the two results."""
    if evidence.cut.kind != "replace":
        return None
    tried = 0
    for operation, scalar in evidence.scalar_operations():
        for other in _candidates(evidence, operation, scalar):
            tried += 1
            if tried > _TRIALS:
                return None
            change = ChangedValues(scalars={operation.call: (scalar, other)})
            # Of a table, parts that nothing reads may be anything.
            is_table = not evidence.mine.from_tokens
            if evidence.agrees_with(change) or (is_table and evidence.s.restores(change)):
                facts = {"port": scalar, "reference": other, "operation": operation.name}
                return Cause(_kind(evidence, operation), facts, operation.lines[:1])
    return None


def another_sign(evidence: Evidence) -> Cause | None:
    """Test whether the port adds a term that the reference subtracts, or the other way round."""
    if evidence.cut.kind != "replace":
        return None
    sums = [o for o in evidence.region if o.name in ("add", "sub") and len(o.inputs) == 2]
    sums = [o for o in sums if o.from_tokens and not o.scalars]
    # A rotation has two of them.
    for chosen in (*([o] for o in sums[-_SUMS:]), sums[-2:]):
        turned = {o.index: _with_other_sign(evidence, o) for o in chosen}
        if chosen and evidence.agrees_with(ChangedValues(replace=turned)):
            sign = -1 if chosen[0].name == "sub" else 1
            facts = {"port": sign, "reference": -sign, "operation": chosen[0].name}
            return Cause("factor", facts, chosen[0].lines[:1])
    return None


def _with_other_sign(evidence: Evidence, operation: Operation) -> Tensor:
    one, other = (evidence.value(i) for i in operation.inputs)
    return one + other if operation.name == "sub" else one - other


def number_added(evidence: Evidence) -> Cause | None:
    """Report a number that the port adds, if the two agree without it: the reference adds none, or
    one that is too small to notice."""
    mine = evidence.mine
    is_added = mine.name in ("add", "add_") and len(mine.inputs) == 1 and mine.scalars
    if evidence.cut.kind != "bypass" or not is_added:
        return None
    readers = evidence.s.matching.reference_readers.get(evidence.cut.reference, ())
    theirs = [evidence.s.theirs[i] for i in readers]
    small = [o.scalars[0] for o in theirs if o.name in ("add", "add_") and o.scalars]
    facts = {"port": mine.scalars[0], "reference": small[0] if small else 0.0, "operation": "add"}
    return Cause(_kind(evidence, mine), facts, mine.lines[:1])


def rounded_table(evidence: Evidence) -> Cause | None:
    """Test whether the port keeps a table of the reference in fewer than 32 bits."""
    at = evidence.s.operations[evidence.s.root(evidence.at)]
    if at.from_tokens or not at.dtype.is_floating_point or at.is_whole:
        return None
    own, wanted = evidence.own, evidence.wanted
    for dtype in LOW:
        kept = bool((own == own.to(dtype).to(own.dtype)).all())
        near = (own - wanted).abs() <= 0.501 * torch.finfo(dtype).eps * wanted.abs()
        exact = wanted == wanted.to(dtype).to(wanted.dtype)
        # Where the reference's number is one of the few, it stays as it is.
        if kept and bool(near.all()) and bool((own == wanted)[exact].all()) and not exact.all():
            return Cause("precision", {"dtype": str(dtype).removeprefix("torch.")})
    return None


def _candidates(evidence: Evidence, operation: Operation, scalar: float) -> Iterator[float]:
    """Yield numbers to try: first those of the reference, then those that the ratio or the
    difference of the results would need."""
    found = [s for o in evidence.their_region for s in o.scalars if s != scalar]
    ratio = _ratio(evidence)
    if ratio is not None and scalar and operation.name in ("mul", "mul_", "div", "div_"):
        found.append(scalar / ratio if operation.name.startswith("mul") else scalar * ratio)
        found.append(-scalar)
    if operation.name in ("add", "sub", "add_") and evidence.own.shape == evidence.wanted.shape:
        shift = (evidence.wanted - evidence.own).flatten()
        if bool((shift - shift[0]).abs().max() <= 1e-9 * shift.abs().max()):
            found.append(scalar + float(shift[0]) * (-1 if operation.name == "sub" else 1))
    if operation.name in ("var", "var_mean", "std"):
        found += [1 - scalar]
    seen: set[float] = {scalar}
    for other in found:
        if math.isfinite(other) and other not in seen:
            seen.add(other)
            yield other


def _kind(evidence: Evidence, operation: Operation) -> str:
    readers = evidence.s.matching.port_readers.get(operation.index, ())
    names = {evidence.s.operations[reader].name for reader in readers}
    if operation.name in ("add", "add_") and names & {"rsqrt", "sqrt", "div", "pow", "reciprocal"}:
        return "epsilon"
    if operation.name.startswith(("mul", "div")):
        return "factor"
    if operation.name == "pow" and not operation.from_tokens:
        return "base"
    if operation.name in ("var", "var_mean", "std"):
        return "variance"
    return "number"


def _ratio(evidence: Evidence) -> float | None:
    """Return the factor between the port's value and the reference's; None if it is not the same
    everywhere."""
    own, wanted = evidence.own.flatten(), evidence.wanted.flatten()
    usual = (wanted.abs() < 1e8) & (own.abs() < 1e8)
    own, wanted = own[usual], wanted[usual]
    if not wanted.numel():
        return None
    size = float(wanted.square().sum())
    if size == 0:
        return None
    ratio = float((own * wanted).sum()) / size
    rest = (own - ratio * wanted).abs().max()
    if ratio == 0 or float(rest) > max(evidence.bound, 1e-9) * float(own.abs().max()):
        return None
    return ratio


def constant_factor(evidence: Evidence) -> Cause | None:
    """Test whether the port's value is the reference's, times a number."""
    if evidence.cut.kind != "replace" or evidence.mine.is_leaf:
        return None
    ratio = _ratio(evidence)
    if ratio is None or abs(ratio - 1) < 1e-9 or not evidence.is_wanted(evidence.own / ratio):
        return None
    return Cause("ratio", {"ratio": ratio})


def constant_added(evidence: Evidence) -> Cause | None:
    """Test whether the port's value is the reference's, plus a number, as for a weight that lacks
    its 1."""
    if evidence.cut.kind not in ("replace", "operand"):
        return None
    if not evidence.s.operations[evidence.s.root(evidence.at)].dtype.is_floating_point:
        return None
    own, wanted = evidence.own, evidence.wanted
    usual = (wanted.abs() < 1e8) & (own.abs() < 1e8)
    if not bool(usual.any()):
        return None
    shift = torch.median((own - wanted)[usual])
    if float(shift) == 0 or not evidence.is_wanted(own - shift):
        return None
    return Cause("shift", {"shift": float(shift)})
