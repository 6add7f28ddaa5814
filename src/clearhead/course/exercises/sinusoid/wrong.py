"""Wrong answers to exercise 5."""

import torch
from torch import Tensor

from clearhead.course.checking import Mistake
from clearhead.course.exercises.sinusoid import solution


def _table(
    n_positions: int, d_model: int, sine: Tensor, cosine: Tensor, base: float = 10000.0
) -> Tensor:
    """From the exponents of both."""
    if d_model % 2:
        raise ValueError("odd")
    places = torch.arange(n_positions)[:, None]
    pair = ((places * base**-sine).sin(), (places * base**-cosine).cos())
    return torch.stack(pair, dim=2).flatten(1)


def _exponents(d_model: int) -> Tensor:
    return torch.arange(0, d_model // 2 * 2, 2) / d_model


def _two_exponents(n_positions: int, d_model: int) -> Tensor:
    i = _exponents(d_model)
    return _table(n_positions, d_model, i, i + 1 / d_model)


def _doubled(n_positions: int, d_model: int) -> Tensor:
    i = _exponents(d_model)
    return _table(n_positions, d_model, 2 * i, 2 * i)


def _base_100(n_positions: int, d_model: int) -> Tensor:
    i = _exponents(d_model)
    return _table(n_positions, d_model, i, i, base=100.0)


def _multiplied(n_positions: int, d_model: int) -> Tensor:
    i = _exponents(d_model)
    return _table(n_positions, d_model, -i, -i)


def _to_the_last_hand(n_positions: int, d_model: int) -> Tensor:
    i = torch.arange(d_model // 2) / (d_model // 2 - 1)
    return _table(n_positions, d_model, i, i)


def _even_tokens(n_positions: int, d_model: int) -> Tensor:
    angle = torch.arange(n_positions)[:, None] * 10000.0 ** -(torch.arange(d_model) / d_model)
    even = torch.arange(n_positions)[:, None] % 2 == 0
    return torch.where(even, angle.sin(), angle.cos())


def _halves(n_positions: int, d_model: int) -> Tensor:
    table = solution.sinusoid(n_positions, d_model)
    return torch.cat((table[:, 0::2], table[:, 1::2]), dim=1)


def _cosine_first(n_positions: int, d_model: int) -> Tensor:
    return solution.sinusoid(n_positions, d_model).unflatten(1, (-1, 2)).flip(2).flatten(1)


def _from_one(n_positions: int, d_model: int) -> Tensor:
    return solution.sinusoid(n_positions + 1, d_model)[1:]


MISTAKES = [
    Mistake("cosine with 2i + 1", "sinusoid", _two_exponents),
    Mistake("2i doubled", "sinusoid", _doubled),
    Mistake("multiplied", "sinusoid", _multiplied),
    Mistake("d/2 - 1", "sinusoid", _to_the_last_hand),
    Mistake("base 100", "sinusoid", _base_100),
    Mistake("sine for even tokens", "sinusoid", _even_tokens),
    Mistake("halves", "sinusoid", _halves),
    Mistake("cosine first", "sinusoid", _cosine_first),
    Mistake("positions from 1", "sinusoid", _from_one),
]
