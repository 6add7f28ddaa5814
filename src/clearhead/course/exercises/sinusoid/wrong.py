"""Wrong answers to exercise 5."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from clearhead.course.checking import Mistake, combined

TableAnswer = Callable[[int, int], Tensor]


def _exponents(d_model: int) -> tuple[Tensor, Tensor]:
    """The exponents of sine and cosine."""
    i = torch.arange(0, d_model, 2) / d_model
    return i, i


def _side_by_side(sine: Tensor, cosine: Tensor) -> Tensor:
    return torch.stack((sine, cosine), dim=2).flatten(1)


def _build(
    exponents: Any = _exponents, order: Any = _side_by_side, first: int = 0, odd: bool = False
) -> TableAnswer:
    """The formula, with one or two steps replaced."""

    def table(n_positions: int, d_model: int) -> Tensor:
        if d_model % 2 and not odd:
            raise ValueError("odd")
        places = torch.arange(first, first + n_positions)[:, None]
        of_sine, of_cosine = exponents(d_model)
        return order((places * 10000.0**-of_sine).sin(), (places * 10000.0**-of_cosine).cos())

    return table


def _two_exponents(d_model: int) -> tuple[Tensor, Tensor]:
    i = torch.arange(0, d_model, 2) / d_model
    return i, i + 1 / d_model


def _by(change: Callable[[Tensor, int], Tensor]) -> Callable[[int], tuple[Tensor, Tensor]]:
    """Both exponents from 2i and the width."""

    def both(d_model: int) -> tuple[Tensor, Tensor]:
        exponent = change(torch.arange(0, d_model, 2), d_model)
        return exponent, exponent

    return both


def _even_tokens(n_positions: int, d_model: int) -> Tensor:
    angle = torch.arange(n_positions)[:, None] * 10000.0 ** -(torch.arange(d_model) / d_model)
    even = torch.arange(n_positions)[:, None] % 2 == 0
    return torch.where(even, angle.sin(), angle.cos())


WRONG_STEPS = {
    "exponents": {
        "cosine with 2i + 1": _two_exponents,
        "2i doubled": _by(lambda i, d: 2 * i / d),
        "integer division": _by(lambda i, d: i // d),
        "multiplied": _by(lambda i, d: -i / d),
        "d/2 - 1": _by(lambda i, d: i / (d - 2)),
        "base 100": _by(lambda i, d: i / 2 / d),
    },
    "order": {
        "halves": lambda sine, cosine: torch.cat((sine, cosine), dim=1),
        "cosine first": lambda sine, cosine: _side_by_side(cosine, sine),
    },
    "first": {"positions from 1": 1},
}
MISTAKES = [
    *combined("sinusoid", _build, WRONG_STEPS),
    Mistake("sine for even tokens", "sinusoid", _even_tokens),
]
