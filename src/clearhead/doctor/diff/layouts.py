"""Brings one tensor into the shape of another: with its axes in another order, split, merged, or
repeated."""

from collections.abc import Iterator
from itertools import islice, permutations

import torch
from torch import Tensor

MAX_LAYOUTS = 6
_MAX_AXES = 5
_SAME_COLUMN = 1e-6


def layouts(value: Tensor, shape: tuple[int, ...], *, strict: bool = False) -> Iterator[Tensor]:
    """Yield the value in this shape, in every way that keeps whole axes, the usual ways first. If
    there is none, yield its elements in their order, unless `strict`."""
    yield from islice(_layouts(value, tuple(shape), strict), MAX_LAYOUTS)


def _layouts(value: Tensor, shape: tuple[int, ...], strict: bool) -> Iterator[Tensor]:
    wanted = torch.Size(shape).numel()
    if value.numel() != wanted:
        for smaller in _without_repeats(value, wanted):
            yield from _layouts(smaller, shape, strict)
        larger = _with_repeats(value, shape)
        if larger is not None:
            yield larger
        return
    if tuple(value.shape) == shape:
        yield value
    seen = {tuple(value.shape)} if tuple(value.shape) == shape else set()
    target = [n for n in shape if n != 1]
    whole = value.squeeze()
    if whole.dim() > _MAX_AXES or len(target) > _MAX_AXES:
        if not seen and not strict:
            yield value.reshape(shape)
        return
    given = False
    for split in _splits(whole, target):
        for order in permutations(range(split.dim())):
            turned = split.permute(order)
            is_first = list(order) == sorted(order)
            if is_first and seen:
                continue
            if _merges(list(turned.shape), order, target):
                given = True
                yield turned.reshape(shape)
    if not given and not seen and not strict:
        yield value.reshape(shape)


def _splits(value: Tensor, target: list[int]) -> Iterator[Tensor]:
    """Yield the value itself; then with one or two axes split into two that the target has; then
    with an axis of which the target keeps one part and merges the other into a neighbour, as heads
    are merged with the batch."""
    yield value
    once = list(_split_once(value, target))
    yield from once
    for split in once:
        yield from _split_once(split, target)
    for axis, size in enumerate(value.shape):
        if size in target or value.dim() >= _MAX_AXES:
            continue
        for first in dict.fromkeys(target):
            if size % first == 0 and size // first not in target:
                yield value.unflatten(axis, (first, size // first))
                yield value.unflatten(axis, (size // first, first))


def _split_once(value: Tensor, target: list[int]) -> Iterator[Tensor]:
    for axis, size in enumerate(value.shape):
        if size in target or value.dim() >= _MAX_AXES:
            continue
        for first in dict.fromkeys(target):
            if size % first == 0 and size // first in target:
                yield value.unflatten(axis, (first, size // first))


def _merges(sizes: list[int], order: tuple[int, ...], target: list[int]) -> bool:
    """Tell whether neighbouring axes of these sizes can be merged to the target without changing
    the order within a group: heads and groups in exchanged order are another tensor."""
    rest = list(zip(sizes, order))
    for wanted in target:
        product, last = 1, -1
        while rest and product < wanted:
            size, axis = rest.pop(0)
            if axis < last:
                return False
            product, last = product * size, axis
        if product != wanted:
            return False
    return not rest


def _without_repeats(value: Tensor, wanted: int) -> Iterator[Tensor]:
    """Return the part of which a value is a repetition, as in a table that holds each cosine
    twice."""
    if not wanted or not value.numel() or value.numel() % wanted:
        return
    times = value.numel() // wanted
    for axis, size in enumerate(value.shape):
        if size % times:
            continue
        blocks = value.unflatten(axis, (times, size // times))
        if torch.equal(blocks, blocks.narrow(axis, 0, 1).expand_as(blocks)):
            yield blocks.select(axis, 0)
        turns = value.unflatten(axis, (size // times, times))
        if torch.equal(turns, turns.narrow(axis + 1, 0, 1).expand_as(turns)):
            yield turns.select(axis + 1, 0)


def _with_repeats(value: Tensor, shape: tuple[int, ...]) -> Tensor | None:
    """Return a value that broadcasts to the shape."""
    try:
        return value.expand(shape) if value.dim() <= len(shape) else None
    except RuntimeError:
        return None


def aligned(
    value: Tensor, other: Tensor, tolerance: float, *, strict: bool = False
) -> Tensor | None:
    """Return `other` in the shape of `value`, in the layout in which the two are equal; None if
    there is none."""
    for layout in layouts(other, tuple(value.shape), strict=strict):
        if close(value, layout, tolerance):
            return layout
    return None


def close(one: Tensor, other: Tensor, tolerance: float) -> bool:
    """Tell whether two tensors of one shape are equal, element by element, up to a share of their
    size."""
    return relative(one, other) <= tolerance


def relative(one: Tensor, other: Tensor) -> float:
    """Return the largest difference of elements, as a share of the largest element. Elements that
    are masked (huge or infinite) in both tensors count as equal; if an element is masked in one
    tensor only, the difference is infinite."""
    one, other = one.to(torch.float64), other.to(torch.float64)
    hidden, also = ~(one.abs() < 1e8), ~(other.abs() < 1e8)
    if not torch.equal(hidden, also):
        return torch.inf
    if bool(hidden.all()):
        return 0.0
    one, other = one.masked_fill(hidden, 0.0), other.masked_fill(hidden, 0.0)
    size = max(float(one.abs().max()), float(other.abs().max()), 1e-30)
    return float((one - other).abs().max()) / size


def column_order(wanted: Tensor, given: Tensor) -> Tensor | None:
    """Return the order in which the columns of one tensor are those of the other; None if they are
    not the same columns. Columns are distinguished by their products with random numbers."""
    if wanted.shape != given.shape:
        return None
    n = wanted.shape[-1]
    ours, theirs = (t.to(torch.float64).reshape(-1, n) for t in (wanted, given))
    probe = torch.randn(len(ours), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    order = torch.empty(n, dtype=torch.long)
    order[(probe @ ours).argsort()] = (probe @ theirs).argsort()
    return order if close(ours, theirs[:, order], _SAME_COLUMN) else None
