"""Wrong answers to exercise 6."""

from collections.abc import Callable

import torch
from torch import Tensor

from clearhead.course.checking import Mistake

Function = Callable[[Tensor], Tensor]


def _norm(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float, *, dim: int = -1, unbiased: bool = False
) -> Tensor:
    variance = x.var(dim=dim, keepdim=True, unbiased=unbiased)
    return (x - x.mean(dim=dim, keepdim=True)) / (variance + eps).sqrt() * weight + bias


def _over_the_length(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return _norm(x, weight, bias, eps, dim=1)


def _over_the_batch(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return _norm(x, weight, bias, eps, dim=0)


def _n_minus_1(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return _norm(x, weight, bias, eps, unbiased=True)


def _no_eps(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return _norm(x, weight, bias, 0.0)


def _eps_outside(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    root = x.var(dim=-1, keepdim=True, unbiased=False).sqrt()
    return (x - x.mean(dim=-1, keepdim=True)) / (root + eps) * weight + bias


def _no_mean(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return x / (x.square().mean(dim=-1, keepdim=True) + eps).sqrt() * weight + bias


def _over_length_and_features(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    variance = x.var(dim=(1, 2), keepdim=True, unbiased=False)
    return (x - x.mean(dim=(1, 2), keepdim=True)) / (variance + eps).sqrt() * weight + bias


def _by_the_variance(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    variance = x.var(dim=-1, keepdim=True, unbiased=False)
    return (x - x.mean(dim=-1, keepdim=True)) / (variance + eps) * weight + bias


def _bias_first(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return (_norm(x, torch.ones_like(weight), torch.zeros_like(bias), eps) + bias) * weight


def _no_keepdim(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return (x - x.mean(dim=-1)) / (x.var(dim=-1, unbiased=False) + eps).sqrt() * weight + bias


def _weight_unused(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return _norm(x, torch.ones_like(weight), torch.zeros_like(bias), eps)


def _overwritten(x: Tensor, sublayer: Function, norm: Function, placement: str) -> Tensor:
    if placement == "pre":
        x = norm(x)
        return x + sublayer(x)
    return norm(x + sublayer(x))


def _always_overwritten(x: Tensor, sublayer: Function, norm: Function, placement: str) -> Tensor:
    x = norm(x)
    return x + sublayer(x)


def _norm_behind(x: Tensor, sublayer: Function, norm: Function, placement: str) -> Tensor:
    return x + norm(sublayer(x)) if placement == "pre" else norm(x + sublayer(x))


def _no_residual(x: Tensor, sublayer: Function, norm: Function, placement: str) -> Tensor:
    return sublayer(norm(x)) if placement == "pre" else norm(sublayer(x))


def _no_residual_in_post(x: Tensor, sublayer: Function, norm: Function, placement: str) -> Tensor:
    return x + sublayer(norm(x)) if placement == "pre" else norm(sublayer(x))


def _always_pre(x: Tensor, sublayer: Function, norm: Function, placement: str) -> Tensor:
    return x + sublayer(norm(x))


def _swapped(x: Tensor, sublayer: Function, norm: Function, placement: str) -> Tensor:
    return norm(x + sublayer(x)) if placement == "pre" else x + sublayer(norm(x))


def _post_norm_behind(x: Tensor, sublayer: Function, norm: Function, placement: str) -> Tensor:
    return x + sublayer(norm(x)) if placement == "pre" else x + norm(sublayer(x))


def _added_twice(x: Tensor, sublayer: Function, norm: Function, placement: str) -> Tensor:
    if placement == "pre":
        return x + (x + sublayer(norm(x)))
    return norm(x + (x + sublayer(x)))


def _added_outside(x: Tensor, sublayer: Function, norm: Function, placement: str) -> Tensor:
    if placement == "pre":
        return x + (x + sublayer(norm(x)))
    return x + norm(x + sublayer(x))


def _not_added(x: Tensor, sublayer: Function, norm: Function, placement: str) -> Tensor:
    if placement == "pre":
        sublayer(norm(x))
        return x
    sublayer(x)
    return norm(x)


MISTAKES = [
    Mistake("over the length", "layer_norm", _over_the_length),
    Mistake("over length and features", "layer_norm", _over_length_and_features),
    Mistake("over the batch", "layer_norm", _over_the_batch),
    Mistake("n - 1", "layer_norm", _n_minus_1),
    Mistake("no eps", "layer_norm", _no_eps),
    Mistake("eps outside the root", "layer_norm", _eps_outside),
    Mistake("divided by the variance", "layer_norm", _by_the_variance),
    Mistake("bias before weight", "layer_norm", _bias_first),
    Mistake("no keepdim", "layer_norm", _no_keepdim),
    Mistake("weight and bias unused", "layer_norm", _weight_unused),
    Mistake("mean not subtracted", "layer_norm", _no_mean),
    Mistake("residual after the norm", "residual", _overwritten),
    Mistake("residual after the norm", "residual", _always_overwritten),
    Mistake("x + norm(f(x))", "residual", _norm_behind),
    Mistake("placements swapped", "residual", _swapped),
    Mistake("post: x + norm(f(x))", "residual", _post_norm_behind),
    Mistake("x added twice", "residual", _added_twice),
    Mistake("x added twice", "residual", _added_outside),
    Mistake("not added", "residual", _not_added),
    Mistake("no residual", "residual", _no_residual),
    Mistake("no residual", "residual", _no_residual_in_post),
    Mistake("post is pre", "residual", _always_pre),
]
