"""Checks of exercise 10."""

from typing import Any

import torch
from torch import Tensor

from clearhead.course.checking import (
    Checks,
    FunctionProbe,
    Learned,
    close,
    distance,
    gradient_distance,
    require,
    require_unchanged,
)
from clearhead.course.exercises.rotary import solution

CHECKS = Checks()


def _at(*positions: int) -> Tensor:
    return torch.tensor(positions)


def _probe(f: Any) -> object:
    return [
        f(torch.randn(2, 3, 4, 8), _at(0, 1, 2, 3)),
        f(torch.randn(1, 4, 3, 6), _at(9, 2, 40)),
        f(torch.randn(1, 1, 2, 2), _at(1, 5)),
    ]


PROBES: dict[str, FunctionProbe] = {"rotate": _probe}


@CHECKS.about("rotate")
def shape(it: Learned) -> None:
    """The output has the shape (batch, heads, length, d_head)."""
    found = it["rotate"](torch.randn(2, 3, 5, 8), torch.arange(5))
    require(found.shape == (2, 3, 5, 8), found=tuple(found.shape))


@CHECKS.about("rotate")
def position_0(it: Learned) -> None:
    """At position 0, nothing is rotated."""
    x = torch.randn(1, 2, 1, 8)
    found = it["rotate"](x, _at(0))
    require(close(found, x), change=f"{distance(found, x):.2g}")


@CHECKS.about("rotate")
def one_hand(it: Learned) -> None:
    """The result is that of the exercise's example."""
    found = it["rotate"](torch.tensor([[[[1.0, 0.0]]]]), _at(1)).flatten().tolist()
    near = all(abs(x - y) < 1e-3 for x, y in zip(found, (0.5403, 0.8415), strict=True))
    require(near, found=" ".join(f"{x:.3f}" for x in found))


@CHECKS.about("rotate")
def lengths_stay(it: Learned) -> None:
    """The length of every pair stays the same."""
    x = torch.randn(1, 2, 6, 8)
    before, after = (
        y.unflatten(-1, (4, 2)).norm(dim=-1) for y in (x, it["rotate"](x, torch.arange(6)))
    )
    require(close(after, before, 1e-4), change=f"{distance(after, before):.2g}")


@CHECKS.about("rotate")
def only_the_distance(it: Learned) -> None:
    """The product of a query and a key depends only on the distance between them."""
    q, k = torch.randn(2, 1, 1, 1, 8)
    scores = [
        (it["rotate"](q.clone(), _at(m)) * it["rotate"](k.clone(), _at(n))).sum().item()
        for m, n in ((3, 1), (10, 8), (52, 50))
    ]
    shown = ", ".join(f"{x:.3f}" for x in scores)
    require(max(scores) - min(scores) < 1e-3, scores=shown)


@CHECKS.about("rotate")
def speeds(it: Learned) -> None:
    """The speeds of the four hands of width 8 are 1, 0.1, 0.01, 0.001."""
    x = torch.tensor([1.0, 0.0]).repeat(4).view(1, 1, 1, 8)
    y = it["rotate"](x, _at(1)).flatten()
    angle = torch.atan2(y[1::2], y[0::2])
    wanted = torch.tensor([1.0, 0.1, 0.01, 0.001])
    found = ", ".join(f"{a:.3g}" for a in angle.tolist())
    require(close(angle, wanted, 1e-4), found=found)


@CHECKS.about("rotate")
def given_positions(it: Learned) -> None:
    """A token's position is the one that `positions` gives."""
    x = torch.randn(1, 2, 3, 8)
    found = it["rotate"](x.clone(), _at(7, 2, 7))
    alone = torch.cat([solution.rotate(x[:, :, [t]], _at(p)) for t, p in enumerate((7, 2, 7))], 2)
    require(close(found, alone, 1e-4), change=f"{distance(found, alone):.2g}")


@CHECKS.about("rotate")
def any_size(it: Learned) -> None:
    """The formula holds for other shapes and for far positions."""
    for size, positions in (
        ((3, 1, 4, 4), _at(0, 1, 2, 3)),
        ((1, 5, 2, 64), _at(100, 3)),
        ((2, 4, 4, 10), _at(3, 3, 0, 511)),
        ((1, 1, 2, 2), _at(2, 20_000)),  # of speed 1, whose angle is exact however far it is
    ):
        x = torch.randn(size)
        change = distance(it["rotate"](x.clone(), positions), solution.rotate(x, positions))
        require(change < 1e-3, size=size, change=f"{change:.2g}")


@CHECKS.about("rotate")
def input_unchanged(it: Learned) -> None:
    """The input stays unchanged, because the caller still needs it."""
    require_unchanged(lambda x: it["rotate"](x, torch.arange(3)), torch.randn(1, 2, 3, 4))


@CHECKS.about("rotate")
def new_tensor(it: Learned) -> None:
    """The result is a new tensor, even if nothing is rotated."""
    x = torch.randn(1, 2, 1, 4)
    found = it["rotate"](x, _at(0))
    require(found.untyped_storage().data_ptr() != x.untyped_storage().data_ptr())


@CHECKS.about("rotate")
def gradient(it: Learned) -> None:
    """The gradient reaches x, rotated back."""
    change = gradient_distance(
        lambda x: it["rotate"](x, torch.arange(3)),
        lambda x: solution.rotate(x, torch.arange(3)),
        torch.randn(1, 2, 3, 4),
    )
    require(change < 1e-4, change=f"{change:.2g}")
