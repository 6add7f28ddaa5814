"""Wrong answers to exercise 1."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.course.checking import Mistake, combined, distance
from clearhead.course.exercises.attention import checks, solution

WeightsAnswer = Callable[[Tensor, Tensor], Tensor]


def _right_scale(scores: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
    return scores / math.sqrt(queries.shape[-1])


def _right_weights(scores: Tensor) -> Tensor:
    return scores.softmax(dim=-1)


def _build(
    scale: Any = _right_scale, share: Any = _right_weights, vectors: Any = None
) -> WeightsAnswer:
    """Scores of the vectors, scaled, shared among the keys: one or two of the three wrong."""

    def weights(queries: Tensor, keys: Tensor) -> Tensor:
        q, k = (queries, keys) if vectors is None else (vectors(queries), vectors(keys))
        return share(scale(q @ k.transpose(-2, -1), queries, keys))

    return weights


def _bare_exp(scores: Tensor) -> Tensor:
    return scores.exp() / scores.exp().sum(dim=-1, keepdim=True)


def _detached(scores: Tensor) -> Tensor:
    scores = scores - scores.amax(dim=-1, keepdim=True)
    return scores.exp() / scores.exp().sum(dim=-1, keepdim=True).detach()


def _no_gradient(queries: Tensor, keys: Tensor) -> Tensor:
    return solution.attention_weights(queries, keys).detach()


def _scaled_afterwards(queries: Tensor, keys: Tensor) -> Tensor:
    return _build(scale=lambda s, q, k: s)(queries, keys) / math.sqrt(queries.shape[-1])


def _not_transposed(queries: Tensor, keys: Tensor) -> Tensor:
    return (queries @ keys / math.sqrt(queries.shape[-1])).softmax(dim=-1)


def _root_of_an_int(queries: Tensor, keys: Tensor) -> Tensor:
    width: Any = queries.shape[-1]
    return (queries @ keys.transpose(-2, -1) / torch.sqrt(width)).softmax(dim=-1)


def _divides_by_a_constant(weights: WeightsAnswer) -> bool:
    """Differences of log-weights are the same multiple of those of the products at any width."""
    factors: list[float] = []
    for d in (4, 9, 16):
        torch.manual_seed(d)
        queries, keys = torch.randn(2, 3, d).double(), torch.randn(2, 5, d).double()
        products = queries @ keys.transpose(-2, -1)
        grown = weights(queries, keys).log().diff(dim=-1) / products.diff(dim=-1)
        if distance(grown, grown.flatten()[0].expand_as(grown)) > 1e-3:
            return False
        factors.append(grown.flatten()[0].item())
    return 0 < factors[0] != 1 and max(factors) - min(factors) < 1e-3


def _weighs_the_keys(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    return solution.attention_weights(queries, keys) @ keys


def _weights_times_scores(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    scores = _right_scale(queries @ keys.transpose(-2, -1), queries, keys)
    return (scores.softmax(dim=-1) * scores) @ values


def _mean_of_the_values(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    return solution.attention(queries, keys, values) / keys.shape[1]


WEIGHTS = "attention_weights"
MISTAKES = [
    *combined(
        WEIGHTS,
        _build,
        {
            "share": {
                "softmax over queries": lambda s: s.softmax(dim=-2),
                "softmax over the batch": lambda s: s.softmax(dim=0),
                "no softmax": lambda s: s,
                "sigmoid": torch.sigmoid,
            },
            "scale": {
                "no scale": lambda s, q, k: s,
                "divided by d": lambda s, q, k: s / q.shape[-1],
                "multiplied by √d": lambda s, q, k: s * math.sqrt(q.shape[-1]),
                "√ of the number of keys": lambda s, q, k: s / math.sqrt(k.shape[1]),
            },
            "vectors": {"cosine": lambda x: F.normalize(x, dim=-1)},
        },
    ),
    Mistake("scaled after the softmax", WEIGHTS, _scaled_afterwards),
    Mistake("no transpose", WEIGHTS, _not_transposed),
    Mistake("torch.sqrt of an int", WEIGHTS, _root_of_an_int),
    Mistake(
        "divided by a constant",
        WEIGHTS,
        _build(scale=lambda s, q, k: s / 8),
        fits=_divides_by_a_constant,
    ),
    Mistake("bare exp", WEIGHTS, _build(share=_bare_exp), probe=checks.probe_far_apart),
    Mistake("sum detached", WEIGHTS, _build(share=_detached), probe=checks.probe_gradients),
    Mistake("no gradient", WEIGHTS, _no_gradient, probe=checks.probe_gradients),
    Mistake("keys weighed", "attention", _weighs_the_keys),
    Mistake("weights times scores", "attention", _weights_times_scores),
    Mistake("divided by the number of keys", "attention", _mean_of_the_values),
]
