"""Wrong answers to exercise 2."""

import torch
from torch import Tensor

from clearhead.course.checking import Mistake


def _square(n_queries: int, n_keys: int) -> Tensor:
    return torch.ones(n_queries, n_keys, dtype=torch.bool)


def _inverted(n_queries: int, n_keys: int) -> Tensor:
    return _square(n_queries, n_keys).triu(1)


def _without_itself(n_queries: int, n_keys: int) -> Tensor:
    return _square(n_queries, n_keys).tril(-1)


def _top_left(n_queries: int, n_keys: int) -> Tensor:
    return _square(n_queries, n_keys).tril()


def _upper(n_queries: int, n_keys: int) -> Tensor:
    return _square(n_queries, n_keys).triu()


def _offset_backwards(n_queries: int, n_keys: int) -> Tensor:
    return _square(n_queries, n_keys).tril(n_queries - n_keys)


def _true_where_padding(real: Tensor) -> Tensor:
    return ~real[:, None]


def _pads_hide_queries(real: Tensor) -> Tensor:
    return real[:, :, None]


def _added_as_0_and_1(scores: Tensor, allowed: Tensor) -> Tensor:
    return (scores + (~allowed).float()).softmax(dim=-1)


def _multiplied(scores: Tensor, allowed: Tensor) -> Tensor:
    return (scores * allowed).softmax(dim=-1)


def _after_the_softmax(scores: Tensor, allowed: Tensor) -> Tensor:
    return scores.softmax(dim=-1) * allowed


def _infinite(scores: Tensor, allowed: Tensor) -> Tensor:
    return scores.masked_fill(~allowed, -torch.inf).softmax(dim=-1)


def _infinity_times_0(scores: Tensor, allowed: Tensor) -> Tensor:
    return (scores + (~allowed).float() * -torch.inf).softmax(dim=-1)


def _large_only(scores: Tensor, allowed: Tensor) -> Tensor:
    return scores.masked_fill(~allowed, -1e9).softmax(dim=-1)


def _allowed_filled(scores: Tensor, allowed: Tensor) -> Tensor:
    return scores.masked_fill(allowed, -1e9).softmax(dim=-1)


def _allowed_filled_then_zeros(scores: Tensor, allowed: Tensor) -> Tensor:
    weights = _allowed_filled(scores, allowed)
    return weights.masked_fill(~allowed.any(dim=-1, keepdim=True), 0.0)


MISTAKES = [
    Mistake("inverted", "causal", _inverted),
    Mistake("not itself", "causal", _without_itself),
    Mistake("top left", "causal", _top_left),
    Mistake("upper triangle", "causal", _upper),
    Mistake("offset backwards", "causal", _offset_backwards),
    Mistake("True where padding", "real_keys", _true_where_padding),
    Mistake("queries hidden", "real_keys", _pads_hide_queries),
    Mistake("the allowed are filled", "masked_weights", _allowed_filled),
    Mistake("the allowed are filled", "masked_weights", _allowed_filled_then_zeros),
    Mistake("added as 0 and 1", "masked_weights", _added_as_0_and_1),
    Mistake("scores set to 0", "masked_weights", _multiplied),
    Mistake("after the softmax", "masked_weights", _after_the_softmax),
    Mistake("-inf", "masked_weights", _infinite),
    Mistake("inf times 0", "masked_weights", _infinity_times_0),
    Mistake("large negative only", "masked_weights", _large_only),
]
