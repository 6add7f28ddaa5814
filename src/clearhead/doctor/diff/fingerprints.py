"""Describes each tensor by a few numbers, by which its counterpart in another program is found.

They do not change if elements are put into another order or if all elements are repeated equally
often: views, transposes, heads that are split off, and keys that are expanded to more heads keep
them. If the order itself is in question, `layouts` compares values.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

# Masks are -inf here, -1e9 or the smallest number there: above this, only their share counts.
_HUGE = 1e8
_RANKS = 16
# Beyond it a sort costs more than it shows.
_MAX_SORTED = 4_000_000
_TINY = 1e-30


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Moments and ranks of a tensor's finite values, and their largest size."""

    numbers: tuple[float, ...]
    scale: float
    hidden: float
    """The share of elements that are infinite, huge or NaN."""
    count: int

    @property
    def ranks(self) -> tuple[float, ...]:
        """Return single elements, from the smallest to the largest."""
        return self.numbers[3:]


def fingerprint(tensor: Tensor) -> Fingerprint:
    """Compute the fingerprint of any tensor of numbers."""
    values = tensor.detach()
    if values.is_complex():
        values = torch.view_as_real(values)
    values = values.reshape(-1)
    count, hidden = values.numel(), 0.0
    if count > _MAX_SORTED and values.is_floating_point():
        return _of_large(values)
    values = values.to(torch.float64).sort().values
    if not (count and _size(values) < _HUGE):
        values = values[values.abs() < _HUGE]
        hidden = 1 - values.numel() / count if count else 0.0
    n = values.numel()
    if not n:
        return Fingerprint((0.0,) * (3 + _RANKS + 1), 0.0, hidden, count)
    scale = max(_size(values), _TINY)
    square = values * values
    moments = (
        float(values.sum()) / n,
        float(square.sum()) / (n * scale),
        float(torch.dot(square, values)) / (n * scale * scale),
    )
    return Fingerprint((*moments, *values[_ranks(n)].tolist()), scale, hidden, count)


def _size(ordered: Tensor) -> float:
    """Return the largest absolute value; NaN if an element is NaN."""
    low, high = float(ordered[0]), float(ordered[-1])
    return high if high != high else max(abs(low), abs(high))


def _of_large(values: Tensor) -> Fingerprint:
    """Compute the fingerprint of a large tensor, without sorting it and without a copy in double
    precision."""
    low, high = float(values.min()), float(values.max())
    scale = max(abs(low), abs(high), _TINY)
    unit = values / scale
    moments = [unit.mean(dtype=torch.float64), (unit * unit).mean(dtype=torch.float64)]
    moments.append((unit * unit * unit).mean(dtype=torch.float64))
    numbers = (*(float(m) * scale for m in moments), low, high, *(0.0,) * (_RANKS - 1))
    return Fingerprint(numbers, scale, 0.0, values.numel())


@cache
def _ranks(n: int) -> Tensor:
    """Return the ranks, among n sorted elements, whose values are kept. They are whole numbers, so
    that a repeated tensor keeps the same elements."""
    return (torch.arange(_RANKS + 1) * n // _RANKS).clamp(max=n - 1)


def distance(one: Fingerprint, other: Fingerprint) -> float:
    """Return the largest difference, as a share of the larger tensor's size. It is a lower bound
    for the difference of the elements, and infinite if the shares of masked elements differ."""
    if abs(one.hidden - other.hidden) > 1e-9:
        return math.inf
    size = max(one.scale, other.scale)
    if size <= _TINY:
        return 0.0
    return max(abs(a - b) for a, b in zip(one.numbers, other.numbers)) / size


class FingerprintIndex:
    """An index of a program's fingerprints, sorted by size, in which those close to another
    fingerprint can be found."""

    def __init__(self, prints: dict[int, Fingerprint]) -> None:
        self._places = sorted(prints, key=lambda place: prints[place].scale)
        self._prints = prints
        self._scales = [prints[place].scale for place in self._places]

    def near(self, wanted: Fingerprint, bound: float) -> Iterator[tuple[int, float]]:
        """Return the places of the fingerprints within this distance, with their distances."""
        low, high = wanted.scale * (1 - 2 * bound), wanted.scale * (1 + 2 * bound)
        for place in self._places[bisect_left(self._scales, low) :]:
            if self._prints[place].scale > high:
                return
            apart = distance(wanted, self._prints[place])
            if apart <= bound:
                yield place, apart
