"""Wrong answers to exercise 10."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from clearhead.course.checking import Mistake, combined
from clearhead.course.exercises.rotary import solution
from clearhead.course.exercises.sinusoid.solution import sinusoid

RotateAnswer = Callable[[Tensor, Tensor], Tensor]


def _neighbours(a: Tensor, b: Tensor) -> Tensor:
    return torch.stack((a, b), dim=-1).flatten(-2)


def _right(a: Tensor, b: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    return a * cos - b * sin, a * sin + b * cos


def _build(
    exponent: Any = lambda i, d: i / d, turn: Any = _right, halves: bool = False, places: Any = None
) -> RotateAnswer:
    """The formula, with one or two steps replaced."""

    def rotate(x: Tensor, positions: Tensor) -> Tensor:
        d_head = x.shape[-1]
        positions = positions if places is None else places(positions)
        speed = 10000.0 ** -exponent(torch.arange(0, d_head, 2), d_head)
        angle = positions[:, None] * speed
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        a, b = x.chunk(2, dim=-1) if halves else (x[..., 0::2], x[..., 1::2])
        both = turn(a, b, cos, sin)
        return torch.cat(both, dim=-1) if halves else _neighbours(*both)

    return rotate


def _added(x: Tensor, positions: Tensor) -> Tensor:
    return x + sinusoid(int(positions.max()) + 1, x.shape[-1])[positions].to(x.dtype)


def _along_the_heads(x: Tensor, positions: Tensor) -> Tensor:
    return solution.rotate(x.transpose(1, 2), positions[: x.shape[1]]).transpose(1, 2)


def _swapped(x: Tensor, positions: Tensor) -> Tensor:
    """x · cos + (b, a) · sin, without the minus sign."""
    return _build(turn=lambda a, b, cos, sin: (a * cos + b * sin, b * cos + a * sin))(x, positions)


def _halves_in_the_result(x: Tensor, positions: Tensor) -> Tensor:
    """The right pairs, which are not put back in their places."""
    rotated = solution.rotate(x, positions)
    return torch.cat((rotated[..., 0::2], rotated[..., 1::2]), dim=-1)


def _new_a(x: Tensor, positions: Tensor) -> Tensor:
    """In place: the second line reads an `a` that has been rotated already."""

    def turn(a: Tensor, b: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        a = a * cos - b * sin
        return a, a * sin + b * cos

    return _build(turn=turn)(x, positions)


WRONG_STEPS: dict[str, dict[str, Any]] = {
    "exponent": {
        "2i doubled": lambda i, d: 2 * i / d,
        "base 100": lambda i, d: i / 2 / d,
        "faster, not slower": lambda i, d: -i / d,
        "one speed": lambda i, d: 0 * i / d,
    },
    "turn": {
        "the other way": lambda a, b, cos, sin: (a * cos + b * sin, b * cos - a * sin),
        "cosine only": lambda a, b, cos, sin: (a * cos, b * cos),
        "b before a": lambda a, b, cos, sin: (a * sin + b * cos, a * cos - b * sin),
    },
    "halves": {"halves": True},
    "places": {
        "places counted": lambda positions: torch.arange(len(positions)),
        "positions from 1": lambda positions: positions + 1,
    },
}
MISTAKES = [
    *combined("rotate", _build, WRONG_STEPS),
    Mistake("no minus", "rotate", _swapped),
    Mistake("halves in the result", "rotate", _halves_in_the_result),
    Mistake("a changed too early", "rotate", _new_a),
    Mistake("sinusoid added", "rotate", _added),
    Mistake("along the heads", "rotate", _along_the_heads),
]
