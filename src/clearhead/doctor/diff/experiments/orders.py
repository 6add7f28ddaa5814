"""Experiments for the right numbers in another order, along another axis, or at other positions."""

import math

import torch
from torch import Tensor

from ...form import CALL_ERRORS
from ..evidence import Cause, Evidence
from ..form_of_tables import base_of
from ..layouts import relative
from ..operations import Operation, root
from ..recorded import Swap
from ..replaying import CannotReplayError, ChangedValues

_REDUCE = (
    "sum", "mean", "amax", "amin", "var", "var_mean", "std", "cumsum", "cumprod", "softmax",
    "_softmax", "logsumexp", "prod", "any", "all", "max", "min", "linalg_vector_norm",
)  # fmt: skip
_LOOKS_UP = ("embedding", "index", "index_select", "gather")
_SHIFTS = (1, -1, 2, -2, 3, -3, 4, -4)
_MAKERS = 60


def another_axis(evidence: Evidence) -> Cause | None:
    """Test whether a sum, mean, norm or softmax runs over another axis."""
    if evidence.cut.kind != "replace":
        return None
    for last in reversed(evidence.region):
        if last.name not in _REDUCE or not last.dims:
            continue
        # A softmax is several operations over one axis.
        parts = [o for o in evidence.region if o.name in _REDUCE and o.frames == last.frames]
        parts = [o for o in parts if o.dims[:1] == last.dims[:1] and o.lines == last.lines]
        n_axes = len(evidence.s.operations[last.inputs[0]].shape)
        for axis in range(-n_axes, 0):
            if axis in (last.dims[0], last.dims[0] - n_axes):
                continue
            change = ChangedValues(dims={o.call: (o.dims[0], axis) for o in parts})
            if evidence.agrees_with(change):
                facts = {"port": last.dims[0] % n_axes, "reference": axis % n_axes}
                return Cause("axis", facts, last.lines[:1])
    return None


def another_order(evidence: Evidence) -> Cause | None:
    """Report elements that are the reference's in another order. The cut has shown that the two
    agree in the reference's order."""
    if evidence.cut.kind != "order":
        return None
    if evidence.mine.name == "parameter":
        theirs = evidence.s.theirs
        label = theirs[root(theirs, evidence.cut.reference)].label
        return Cause("weight_order", {"port": evidence.mine.label, "reference": label})
    repeated = _repeats(evidence)
    if repeated is not None:
        return Cause("order", {"how": "heads", "operation": repeated.name}, repeated.lines[:1])
    return Cause("order", {"how": "elements", "operation": evidence.mine.name})


def transposed_table(evidence: Evidence) -> Cause | None:
    """Find a square table of the port, such as distances between queries and keys, that is
    transposed: the first table whose transpose gives the reference's."""
    if evidence.s.operations[evidence.at].from_tokens:
        return None
    for index in evidence.makers(evidence.at)[:_MAKERS]:
        made = evidence.s.operations[index]
        if len(made.shape) < 2 or made.shape[-1] != made.shape[-2] or made.reorders:
            continue
        table = evidence.value(index)
        if made.name == "parameter" or relative(table, table.mT) == 0:
            continue
        try:
            change = ChangedValues(replace={index: table.mT})
            found = evidence.table_replay.change(change, stop_after=evidence.at)
        except (CannotReplayError, *CALL_ERRORS):
            return None
        if evidence.at in found and evidence.is_wanted(found[evidence.at].to(torch.float64)):
            return Cause("order", {"how": "elements", "operation": made.name}, made.lines[:1])
    return None


def _repeats(evidence: Evidence) -> Operation | None:
    """Return the operation that repeats heads on the way to the wrong order: it tiles heads that
    the reference interleaves, or the other way round."""
    found = evidence.mine
    while found.reorders and found.inputs:
        before = evidence.s.operations[found.inputs[0]]
        if _n_reals(found) > _n_reals(before):
            return found
        found = before
    return None


def _n_reals(operation: Operation) -> int:
    return math.prod(operation.shape) * (2 if operation.dtype.is_complex else 1)


def rotary_layout(evidence: Evidence) -> Cause | None:
    """Test whether the port rotates halves and the reference pairs, or the other way round: if the
    last axis of the input and of the output is reordered, the port computes the reference's
    value."""
    read = [evidence.s.operations[i] for o in evidence.region for i in o.inputs]
    sizes = {o.shape[-1] for o in (*evidence.region, *read) if o.shape and o.from_tokens}
    if evidence.cut.kind == "operand" and len(evidence.entries) == 2:
        return _layout_of_both(evidence, sizes)
    if evidence.cut.kind != "replace" or len(evidence.entries) != 1:
        return None
    entry = evidence.entries[0]
    value = evidence.value(entry)
    for n in sorted(sizes, reverse=True):
        if n < 4 or n % 2 or value.shape[-1] % n:
            continue
        halves = torch.arange(n).reshape(2, -1).t().reshape(-1)
        pairs = halves.argsort()
        for forth, back, name in ((halves, pairs, "halves"), (pairs, halves, "pairs")):
            given = value.unflatten(-1, (-1, n))[..., forth].reshape(value.shape)
            try:
                made = evidence.s.replay.change(
                    ChangedValues(replace={entry: given}), stop_after=evidence.cut.index
                )
            except (CannotReplayError, *CALL_ERRORS):
                return None
            if evidence.cut.index not in made:
                continue
            result = made[evidence.cut.index].reshape(evidence.wanted.shape)
            if result.shape[-1] == 2 and result.shape[-2] * 2 == n:
                result = result.flatten(-2)
            if result.shape[-1] % n:
                continue
            turned = result.unflatten(-1, (-1, n))[..., back]
            # Pairs that stay where they are rotate as well: queries and keys do so together.
            if any(evidence.is_wanted(t.reshape(evidence.wanted.shape)) for t in (turned, result)):
                return _layout(evidence, name)
    return None


def _layout(evidence: Evidence, reference: str) -> Cause:
    """The cause "another layout", with the line that begins to rotate."""
    port = "pairs" if reference == "halves" else "halves"
    first = next((o for o in evidence.region if o.from_tokens and o.line is not None), None)
    facts = {"port": port, "reference": reference}
    return Cause("rotary_layout", facts, first.lines[:1] if first is not None else ())


def _layout_of_both(evidence: Evidence, sizes: set[int]) -> Cause | None:
    """Test the layouts of queries and keys together, if their product is the first comparable
    tensor: it does not depend on an order that queries and keys share."""
    values = {entry: evidence.value(entry) for entry in evidence.entries}
    for n in sorted(sizes, reverse=True):
        if n < 4 or n % 2 or any(value.shape[-1] % n for value in values.values()):
            continue
        halves = torch.arange(n).reshape(2, -1).t().reshape(-1)
        for forth, name in ((halves, "halves"), (halves.argsort(), "pairs")):
            turned = {
                entry: value.unflatten(-1, (-1, n))[..., forth].reshape(value.shape)
                for entry, value in values.items()
            }
            if evidence.s.restores(ChangedValues(replace=turned)):
                return _layout(evidence, name)
    return None


def other_positions(evidence: Evidence) -> Cause | None:
    """Test whether a table or an index is shifted by k positions along one axis."""
    if evidence.mine.from_tokens and evidence.cut.kind == "replace":
        return None
    own, wanted = evidence.own, evidence.wanted
    is_index = not evidence.s.operations[evidence.at].dtype.is_floating_point
    if is_index:
        shift = (own - wanted).flatten()
        if bool((shift == shift[0]).all()) and shift[0] != 0:
            return Cause("positions", {"k": int(shift[0])})
    for axis in range(own.dim()):
        n = own.shape[axis]
        if n < 5:
            continue
        for k in _SHIFTS:
            if abs(k) > n - 4:
                continue
            ours = own.narrow(axis, max(-k, 0), n - abs(k))
            theirs = wanted.narrow(axis, max(k, 0), n - abs(k))
            if _all_close(ours, theirs) and not _all_close(own, wanted):
                return Cause("positions", {"k": k})
    return None


def shifted_index(evidence: Evidence) -> Cause | None:
    """Test whether a table is read at shifted positions: with k more or less, the port computes the
    reference's value."""
    if evidence.cut.kind != "replace":
        return None
    operations = evidence.s.operations
    for read in (o for o in evidence.region if o.name in _LOOKS_UP):
        for i in read.inputs:
            if operations[i].dtype not in (torch.int64, torch.int32):
                continue
            counted = evidence.s.replay.value(i)
            for k in _SHIFTS:
                if evidence.agrees_with(ChangedValues(replace={i: counted - k})):
                    made = operations[evidence.s.root(i)]
                    return Cause("positions", {"k": k}, made.lines[:1] or read.lines[:1])
    return None


def _all_close(one: Tensor, other: Tensor) -> bool:
    size = float(other.abs().max())
    return size > 0 and float((one - other).abs().max()) <= 1e-5 * size


def rotary_base(evidence: Evidence) -> Cause | None:
    """Report two bases if each value is a table of a rotation."""
    if evidence.mine.from_tokens and evidence.cut.kind == "replace":
        return None
    port, reference = base_of(evidence.own), base_of(evidence.wanted)
    if port is None or reference is None or abs(port / reference - 1) < 1e-3:
        return None
    return Cause("base", {"port": port, "reference": reference})


def complex_base(evidence: Evidence) -> Cause | None:
    """Report two bases if the port keeps cosines and sines as complex numbers, and a table with the
    reference's base gives the reference's value."""
    operations, theirs = evidence.s.operations, evidence.s.theirs
    read = {i for o in evidence.region for i in (o.index, *o.inputs)}
    tables = [i for i in sorted(read) if operations[i].dtype.is_complex]
    tables = [i for i in tables if not operations[i].from_tokens]
    if not tables:
        return None
    other = {i for o in evidence.their_region for i in (o.index, *o.inputs)}
    other = {i for i in other if not theirs[i].from_tokens and len(theirs[i].shape) > 1}
    values = evidence.s.their_values(other).values()
    bases = [base for value in values if (base := base_of(value)) is not None]
    for index in tables:
        table = evidence.s.replay.value(index)
        angles = table.angle().to(torch.float64)
        port = base_of(angles)
        for base in dict.fromkeys(bases):
            if port is None or abs(port / base - 1) < 1e-3:
                continue
            length, n = angles.squeeze().shape
            rates = base ** -(torch.arange(n, dtype=torch.float64) / n)
            turned = torch.outer(torch.arange(length, dtype=torch.float64), rates)
            made = torch.polar(torch.ones_like(turned), turned).reshape(table.shape)
            if evidence.s.restores(ChangedValues(swaps=(Swap(index, made),))):
                return Cause("base", {"port": port, "reference": base})
    return None
