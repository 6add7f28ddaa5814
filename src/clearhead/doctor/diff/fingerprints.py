"""A few numbers for each tensor, by which its equal in another program is found.

They do not change when elements are put into another order or when all are repeated equally often:
views, transposes, heads split off and keys expanded to more heads keep them. Where the order itself
is in question, `layouts` compares values.
"""

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

    numbers: Tensor
    scale: float
    hidden: float
    """The share of elements that are infinite, huge or no number."""
    count: int


def fingerprint(tensor: Tensor) -> Fingerprint:
    """The fingerprint of any tensor of numbers."""
    values = tensor.detach()
    if values.is_complex():
        values = torch.view_as_real(values)
    # A table of words in double precision would take more memory than the rest of the run.
    values = values.reshape(-1)
    if values.numel() <= _MAX_SORTED or not values.is_floating_point():
        values = values.to(torch.float64)
    count = values.numel()
    hidden, scale = 0.0, float(values.abs().max()) if count else 0.0
    if not scale < _HUGE:
        values = values[values.abs() < _HUGE]
        hidden = 1 - values.numel() / count
        scale = float(values.abs().max()) if values.numel() else 0.0
    if not values.numel():
        return Fingerprint(torch.zeros(4 + _RANKS + 1, dtype=torch.float64), 0.0, hidden, count)
    scale = max(scale, _TINY)
    ranked = _ranked(values)
    unit = values / scale
    square = unit * unit
    means = (unit, square, square * unit, unit.abs())
    moments = torch.stack([mean.mean(dtype=torch.float64) for mean in means]).mul_(scale)
    return Fingerprint(torch.cat([moments, ranked]), scale, hidden, count)


def _ranked(values: Tensor) -> Tensor:
    n = values.numel()
    if n > _MAX_SORTED:
        ends = torch.stack([values.min(), values.max()]).to(torch.float64)
        return torch.cat([ends, ends.new_zeros(_RANKS - 1)])
    return values.sort().values[_ranks(n)]


@cache
def _ranks(n: int) -> Tensor:
    """Whole numbers, so that repetition picks the same elements."""
    return (torch.arange(_RANKS + 1) * n // _RANKS).clamp(max=n - 1)


def distance(one: Fingerprint, other: Fingerprint) -> float:
    """The largest difference, as a share of the larger tensor's size. A lower bound for that of
    the elements; infinite where different shares are masked."""
    if abs(one.hidden - other.hidden) > 1e-9:
        return torch.inf
    size = max(one.scale, other.scale)
    if size <= _TINY:
        return 0.0
    return float((one.numbers - other.numbers).abs().max()) / size


class FingerprintIndex:
    """Fingerprints of one program, in which the equal of a tensor is looked up."""

    def __init__(self, prints: dict[int, Fingerprint]) -> None:
        self.places = list(prints)
        kept = list(prints.values())
        self._numbers = torch.stack([p.numbers for p in kept]) if kept else torch.zeros(0, 21)
        self._scales = torch.tensor([p.scale for p in kept], dtype=torch.float64)
        self._hidden = torch.tensor([p.hidden for p in kept], dtype=torch.float64)

    def distances(self, wanted: Fingerprint) -> Tensor:
        """From a fingerprint to each one here, in the order of `places`."""
        size = self._scales.clamp(min=wanted.scale).clamp(min=_TINY)
        found = (self._numbers - wanted.numbers).abs().amax(dim=1) / size
        return found.masked_fill((self._hidden - wanted.hidden).abs() > 1e-9, torch.inf)
