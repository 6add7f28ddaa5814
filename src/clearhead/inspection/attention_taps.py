"""Lets a trace read scores and weights, which exist between queries and heads and are not the
output of any module."""

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import nn

from clearhead.inspection.sites import Site
from clearhead.parts import masks
from clearhead.parts.attention import (
    MultiHeadAttention,
    attention_scores,
    attention_weights,
    one_per_query_head,
)
from clearhead.shapes import Float, Tensor, Weights


class Visitor(Protocol):
    """Receives the score and weight matrices of an attention, and may replace them."""

    explicit: bool

    def visit_matrix(self, site: Site, x: Tensor, real_keys: Tensor | None) -> Tensor:
        """Return the matrix with which the attention continues: x itself or a replacement."""
        ...


class Tap:
    """A function that sees (and may replace) what one method of one module returns. All taps on a
    method share the wrapper on the module, which is removed with the last of them."""

    def __init__(self, module: nn.Module, method: str, function: Callable[..., Any]) -> None:
        self.module, self.method, self.function = module, method, function
        wrapper = module.__dict__.get(method)
        if wrapper is None:
            wrapper = _Wrapper(getattr(module, method))
            setattr(module, method, wrapper)
        self._taps: list[Tap] = wrapper.taps
        self._taps.append(self)

    def remove(self) -> None:
        """Remove this tap. Removing the last tap also removes the wrapper."""
        self._taps.remove(self)
        if not self._taps:
            delattr(self.module, self.method)


class _Wrapper:
    def __init__(self, original: Callable[..., Any]) -> None:
        self.original = original
        self.taps: list[Tap] = []

    def __call__(self, *args: Any) -> Any:
        result = self.original(*args)
        for tap in self.taps:
            result = tap.function(result)
        return result


class _AttendWrapper(_Wrapper):
    """Shows the scores to all taps, and then the weights. The kernel runs if no tap has changed
    anything."""

    def __init__(self, attention: MultiHeadAttention) -> None:
        super().__init__(attention.attend)
        self.attention = attention

    def __call__(self, *args: Any) -> Tensor:
        queries, seen, view = args
        attention, taps = self.attention, [tap.function for tap in self.taps]
        allowed = view.allowed
        if attention.causal:
            shape = queries.shape[2], seen.keys.shape[2]
            allowed = masks.both(allowed, masks.causal(*shape, queries.device))
        real_keys = None if view.allowed is None else view.allowed.any(dim=2)[:, 0]
        scores = attention_scores(queries, seen.keys, bias=view.bias)
        if allowed is not None:
            scores = scores.masked_fill(~allowed, -torch.inf)
        new_scores = scores
        for tap in taps:
            new_scores = tap("scores", new_scores, real_keys)
        by_formula = new_scores is not scores or any(tap("explicit", None, None) for tap in taps)
        if by_formula:
            weights = _softmax(new_scores).to(queries.dtype)
        else:
            mask = {"allowed": view.allowed, "causal": attention.causal, "bias": view.bias}
            weights = attention_weights(queries, seen.keys, **mask)
        new_weights = weights
        for tap in taps:
            new_weights = tap("weights", new_weights, real_keys)
        if new_weights is weights and not by_formula:
            return self.original(queries, seen, view)
        return attention.dropout(new_weights) @ one_per_query_head(seen.values, queries)


def tap_attention(
    attention: MultiHeadAttention, visitor: Visitor, scores: Site, weights: Site
) -> Tap:
    """Let the visitor see the scores and weights of one attention."""
    sites = {"scores": scores, "weights": weights}

    def function(what: str, x: Tensor | None, real_keys: Tensor | None) -> Any:
        if what == "explicit":
            return visitor.explicit
        assert x is not None
        return visitor.visit_matrix(sites[what], x, real_keys)

    if "attend" not in attention.__dict__:
        attention.attend = _AttendWrapper(attention)  # type: ignore[method-assign]
    return Tap(attention, "attend", function)


def per_head(
    heads: Float[Tensor, "batch heads length d_head"], weight: Float[Tensor, "d_model width"]
) -> Float[Tensor, "batch heads length d_model"]:
    """Return the contribution of each head: its part of the output matrix, without the bias."""
    parts = weight.unflatten(1, (heads.shape[1], -1))
    return torch.einsum("bhne,dhe->bhnd", heads, parts)


def _softmax(scores: Weights) -> Weights:
    """Compute a softmax in which a row without any allowed key becomes all zeros, with finite
    gradients."""
    empty = (scores == -torch.inf).all(dim=-1, keepdim=True)
    return scores.masked_fill(empty, 0.0).softmax(dim=-1).masked_fill(empty, 0.0)
