"""Wrong answers to exercise 11."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from clearhead.course.checking import Mistake, combined
from clearhead.course.exercises.grouped_queries import solution

GroupedAnswer = Callable[[Tensor, Tensor, Tensor], Tensor]


def _together(x: Tensor, group: int) -> Tensor:
    return x.repeat_interleave(group, dim=1)


def _in_turn(x: Tensor, group: int) -> Tensor:
    return x.repeat(1, group, 1, 1)


def _first(x: Tensor, group: int) -> Tensor:
    return x[:, :1].expand(-1, x.shape[1] * group, -1, -1)


def _build(
    repeat: Any = (_together, _together), divisor: Any = None, axis: int = -1
) -> GroupedAnswer:
    """Attention, with one or two steps replaced."""

    def grouped_attention(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        group, rest = divmod(queries.shape[1], keys.shape[1])
        if rest:
            raise ValueError
        keys, values = repeat[0](keys, group), repeat[1](values, group)
        scale = math.sqrt(queries.shape[-1]) if divisor is None else divisor(queries, group)
        scores = queries @ keys.transpose(-2, -1) / scale
        return scores.softmax(dim=axis) @ values

    return grouped_attention


def _mean_of_queries(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """One query for each group."""
    group = queries.shape[1] // keys.shape[1]
    means = queries.unflatten(1, (keys.shape[1], group)).mean(2)
    return _together(solution.grouped_attention(means, keys, values), group)


def _not_refused(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Rounds the size of a group down and takes the last head again."""
    n_heads, n_kv_heads = queries.shape[1], keys.shape[1]
    group = max(1, n_heads // n_kv_heads)
    chosen = [min(h // group, n_kv_heads - 1) for h in range(n_heads)]
    return solution.grouped_attention(queries, keys[:, chosen], values[:, chosen])


def _accepts_what_does_not_divide(grouped_attention: Any) -> bool:
    queries, keys = torch.randn(1, 4, 2, 4), torch.randn(1, 3, 2, 4)
    right = torch.randn(1, 4, 2, 4), torch.randn(1, 2, 3, 4), torch.randn(1, 2, 3, 4)
    near = torch.allclose(grouped_attention(*right), solution.grouped_attention(*right), atol=1e-4)
    return near and grouped_attention(queries, keys, keys).shape == queries.shape


def _bytes(
    kinds: int = 2, heads: str = "kv", width: str = "head", layers: bool = True, power: int = 1
) -> Callable[..., int]:
    def cache_bytes(
        n_layers: int, d_model: int, n_heads: int, n_kv_heads: int, length: int, bytes_each: int
    ) -> int:
        n = {"kv": n_kv_heads, "query": n_heads, "group": n_heads // n_kv_heads}[heads]
        wide = {"head": d_model // n_heads, "model": d_model}[width]
        return kinds * n * wide * length**power * bytes_each * (n_layers if layers else 1)

    return cache_bytes


WRONG_STEPS: dict[str, dict[str, Any]] = {
    "repeat": {
        "heads in turn": (_in_turn, _in_turn),
        "keys in turn": (_in_turn, _together),
        "values in turn": (_together, _in_turn),
        "first head for all": (_first, _first),
    },
    "divisor": {
        "no scale": lambda queries, group: 1,
        "√d_model": lambda queries, group: math.sqrt(queries.shape[1] * queries.shape[-1]),
        "divided by d": lambda queries, group: queries.shape[-1],
    },
    "axis": {"softmax over queries": -2},
}
WRONG_BYTES: dict[str, dict[str, Any]] = {
    "kinds": {"keys only": 1, "queries kept too": 3, "bits": 16},
    "heads": {"query heads counted": "query", "group instead of heads": "group"},
    "layers": {"one layer": False},
    "width": {"d_model for a head": "model"},
    "power": {"length squared": 2},
}
MISTAKES = [
    Mistake("mean of the group", "grouped_attention", _mean_of_queries),
    Mistake("not refused", "grouped_attention", _not_refused, fits=_accepts_what_does_not_divide),
    *combined("grouped_attention", _build, WRONG_STEPS),
    *combined("cache_bytes", _bytes, WRONG_BYTES),
]
