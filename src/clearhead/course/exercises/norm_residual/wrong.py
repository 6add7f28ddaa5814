"""Wrong answers to exercise 6."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from clearhead.course.checking import Mistake, combined
from clearhead.course.exercises.norm_residual import checks, solution

Function = Callable[[Tensor], Tensor]


def _root(variance: Tensor, eps: float) -> Tensor:
    return (variance + eps).sqrt()


def _weight_and_bias(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return x * weight + bias


def _build_norm(
    axes: Any = -1, n: int = 0, root: Any = _root, end: Any = _weight_and_bias
) -> Callable[..., Tensor]:
    """The formula, with one or two steps replaced; `n` is subtracted from the count."""

    def norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        over = tuple(range(x.ndim)) if axes == "all" else axes
        variance = x.var(dim=over, keepdim=True, correction=n)
        return end((x - x.mean(dim=over, keepdim=True)) / root(variance, eps), weight, bias)

    return norm


def _no_mean(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return x / (x.square().mean(dim=-1, keepdim=True) + eps).sqrt() * weight + bias


def _no_keepdim(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return (x - x.mean(dim=-1)) / (x.var(dim=-1, unbiased=False) + eps).sqrt() * weight + bias


def _squares_minus_square(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    mean = x.mean(dim=-1, keepdim=True)
    variance = x.square().mean(dim=-1, keepdim=True) - mean.square()
    return (x - mean) / (variance + eps).sqrt() * weight + bias


def _loses_its_digits(norm: Any) -> bool:
    """Right for small numbers, and wrong by more than rounding for large ones."""
    x, weight, bias = torch.randn(2, 3, 4), torch.ones(4), torch.zeros(4)
    near, far = (norm(start + x, weight, bias, 1e-5) for start in (0, 5000))
    wanted = solution.layer_norm(x, weight, bias, 1e-5)
    return checks.distance(near, wanted) < 1e-3 and checks.distance(far, wanted) > 0.02


def _detached(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)
    return (x - mean.detach()) / (variance.detach() + eps).sqrt() * weight + bias


def _no_gradient(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return solution.layer_norm(x, weight, bias, eps).detach()


NORM_STEPS = {
    "axes": {
        "over the length": 1,
        "over length and features": (1, 2),
        "over the batch": 0,
        "over everything": "all",
    },
    "n": {"n - 1": 1},
    "root": {
        "no eps": lambda variance, eps: variance.sqrt(),
        "eps outside the root": lambda variance, eps: variance.sqrt() + eps,
        "divided by the variance": lambda variance, eps: variance + eps,
    },
    "end": {
        "bias before weight": lambda x, weight, bias: (x + bias) * weight,
        "weight and bias unused": lambda x, weight, bias: x,
    },
}


def _pre(x: Tensor, f: Function, norm: Function) -> Tensor:
    return x + f(norm(x))


def _post(x: Tensor, f: Function, norm: Function) -> Tensor:
    return norm(x + f(x))


def _build_residual(pre: Any = _pre, post: Any = _post) -> Callable[..., Tensor]:
    """One placement replaced, or both."""

    def residual(x: Tensor, sublayer: Function, norm: Function, placement: str) -> Tensor:
        return (pre if placement == "pre" else post)(x, sublayer, norm)

    return residual


def _overwritten(x: Tensor, f: Function, norm: Function) -> Tensor:
    x = norm(x)
    return x + f(x)


def _thrown_away_pre(x: Tensor, f: Function, norm: Function) -> Tensor:
    f(norm(x))
    return x


def _thrown_away_post(x: Tensor, f: Function, norm: Function) -> Tensor:
    f(x)
    return norm(x)


def _twice(x: Tensor, f: Function, norm: Function) -> Tensor:
    return x + (f(norm(x)) + f(norm(x))) / 2


def _same(name: str, pre: Any, post: Any) -> Mistake:
    """One misunderstanding that spoils both placements."""
    return Mistake(name, "residual", _build_residual(pre, post))


RESIDUAL_STEPS = {
    "pre": {
        "residual after the norm": _overwritten,
        "x + norm(f(x))": lambda x, f, norm: x + norm(f(x)),
        "no norm in pre": lambda x, f, norm: x + f(x),
    },
    "post": {
        "post: x + norm(f(x))": lambda x, f, norm: x + norm(f(x)),
        "no norm in post": lambda x, f, norm: x + f(x),
        "post is pre": _pre,
    },
}
MISTAKES = [
    *combined("layer_norm", _build_norm, NORM_STEPS),
    Mistake("no keepdim", "layer_norm", _no_keepdim),
    Mistake("mean not subtracted", "layer_norm", _no_mean),
    Mistake("E[x²] − E[x]²", "layer_norm", _squares_minus_square, fits=_loses_its_digits),
    Mistake("mean and variance detached", "layer_norm", _detached, probe=checks.probe_gradients),
    Mistake("no gradient", "layer_norm", _no_gradient, probe=checks.probe_gradients),
    _same("placements swapped", _post, _pre),
    _same("residual after the norm", _overwritten, _overwritten),
    _same(
        "x added twice",
        lambda x, f, norm: x + (x + f(norm(x))),
        lambda x, f, norm: norm(x + (x + f(x))),
    ),
    _same(
        "x added twice",
        lambda x, f, norm: x + (x + f(norm(x))),
        lambda x, f, norm: x + norm(x + f(x)),
    ),
    _same("not added", _thrown_away_pre, _thrown_away_post),
    _same("no residual", lambda x, f, norm: f(norm(x)), lambda x, f, norm: norm(f(x))),
    _same("no residual", _pre, lambda x, f, norm: norm(f(x))),
    _same("no residual", lambda x, f, norm: f(norm(x)), _post),
    *combined("residual", _build_residual, RESIDUAL_STEPS),
    Mistake("called twice", "residual", _build_residual(_twice), probe=checks.probe_calls),
]
