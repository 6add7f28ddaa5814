"""The right numbers in another order, along another axis, or at other positions."""

from collections.abc import Callable

import torch
from torch import Tensor

from ...form import CALL_ERRORS
from ..evidence import Cause, Evidence
from ..form_of_tables import base_of
from ..replaying import CannotReplayError, ChangedValues

_REDUCE = (
    "sum", "mean", "amax", "amin", "var", "var_mean", "std", "cumsum", "cumprod", "softmax",
    "_softmax", "logsumexp", "prod", "any", "all", "max", "min", "linalg_vector_norm",
)  # fmt: skip
_SHIFTS = (1, -1, 2, -2, 3, -3, 4, -4)


def another_axis(evidence: Evidence) -> Cause | None:
    """A sum, mean, norm or softmax over another axis."""
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
    """The elements are the reference's, in another order: with the reference's order the two agree,
    as the cut has shown."""
    if evidence.cut.kind != "order":
        return None
    if evidence.mine.name == "parameter":
        return Cause("weight_order", {"port": evidence.mine.label, "reference": _label(evidence)})
    return Cause("order", {"how": _how(evidence), "operation": evidence.mine.name})


def _label(evidence: Evidence) -> str:
    from ..substituting import root

    return evidence.s.theirs[root(evidence.s.theirs, evidence.cut.reference)].label


def _how(evidence: Evidence) -> str:
    """Tiled where the reference repeats, or the other way round; else: reordered."""
    before = evidence.mine.inputs[0] if evidence.mine.inputs else None
    if evidence.mine.name in ("repeat", "expand", "repeat_interleave", "clone", "view") and before:
        source = evidence.value(evidence.s.root(before))
        if source.numel() < evidence.own.numel():
            return "heads"
    return "elements"


def rotary_layout(evidence: Evidence) -> Cause | None:
    """Halves are rotated where the reference rotates pairs, or the other way round: with the last
    axis reordered, of what goes in and of what comes out, the port computes what it should."""
    if evidence.cut.kind != "replace" or len(evidence.entries) != 1:
        return None
    entry = evidence.entries[0]
    value = evidence.value(entry)
    read = [evidence.s.operations[i] for o in evidence.region for i in o.inputs]
    sizes = {o.shape[-1] for o in (*evidence.region, *read) if o.shape and o.from_tokens}
    for n in sorted(sizes, reverse=True):
        if n < 4 or n % 2 or value.shape[-1] % n:
            continue
        halves = torch.arange(n).reshape(2, -1).t().reshape(-1)
        pairs = halves.argsort()
        for forth, back, name in ((halves, pairs, "halves"), (pairs, halves, "pairs")):
            given = value.unflatten(-1, (-1, n))[..., forth].reshape(value.shape)
            try:
                made = evidence.s.replay.change(
                    ChangedValues(replace={entry: given}), stop_after=evidence.cut.place
                )
            except (CannotReplayError, *CALL_ERRORS):
                return None
            if evidence.cut.place not in made:
                continue
            result = made[evidence.cut.place].reshape(evidence.wanted.shape)
            if result.shape[-1] == 2 and result.shape[-2] * 2 == n:
                result = result.flatten(-2)
            if result.shape[-1] % n:
                continue
            turned = result.unflatten(-1, (-1, n))[..., back]
            # Pairs that stay where they are rotate as well: queries and keys do so together.
            if any(evidence.is_wanted(t.reshape(evidence.wanted.shape)) for t in (turned, result)):
                port = "pairs" if name == "halves" else "halves"
                return Cause("rotary_layout", {"port": port, "reference": name})
    return None


def other_positions(evidence: Evidence) -> Cause | None:
    """A table or an index that is shifted by k positions along one axis."""
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


def _all_close(one: Tensor, other: Tensor) -> bool:
    size = float(other.abs().max())
    return size > 0 and float((one - other).abs().max()) <= 1e-5 * size


def rotary_base(evidence: Evidence) -> Cause | None:
    """Both values are tables of a rotation, with two bases."""
    if evidence.mine.from_tokens and evidence.cut.kind == "replace":
        return None
    read: Callable[[Tensor], float | None] = base_of
    port, reference = read(evidence.own), read(evidence.wanted)
    if port is None or reference is None or abs(port / reference - 1) < 1e-3:
        return None
    return Cause("base", {"port": port, "reference": reference})
