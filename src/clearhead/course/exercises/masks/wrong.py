"""Wrong answers to exercise 2."""

from typing import Any

import torch
from torch import Tensor

from clearhead.course.checking import Mistake, distance
from clearhead.course.exercises.masks import checks, solution


def _square(n_queries: int, n_keys: int) -> Tensor:
    return torch.ones(n_queries, n_keys, dtype=torch.bool)


def _inverted(n_queries: int, n_keys: int) -> Tensor:
    return _square(n_queries, n_keys).triu(1)


def _without_itself(n_queries: int, n_keys: int) -> Tensor:
    return _square(n_queries, n_keys).tril(n_keys - n_queries - 1)


def _top_left_without_itself(n_queries: int, n_keys: int) -> Tensor:
    return _square(n_queries, n_keys).tril(-1)


def _one_too_far(n_queries: int, n_keys: int) -> Tensor:
    return _square(n_queries, n_keys).tril(n_keys - n_queries + 1)


def _no_mask(n_queries: int, n_keys: int) -> Tensor:
    return _square(n_queries, n_keys)


def _whole_numbers(n_queries: int, n_keys: int) -> Tensor:
    return solution.causal(n_queries, n_keys).long()


def _floats(n_queries: int, n_keys: int) -> Tensor:
    return solution.causal(n_queries, n_keys).float()


def _floats_top_left(n_queries: int, n_keys: int) -> Tensor:
    return torch.ones(n_queries, n_keys).tril()


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


def _not_masked(scores: Tensor, allowed: Tensor) -> Tensor:
    return scores.softmax(dim=-1)


def _no_softmax(scores: Tensor, allowed: Tensor) -> Tensor:
    return scores.masked_fill(~allowed, torch.finfo(scores.dtype).min / 2)


def _over_the_queries(scores: Tensor, allowed: Tensor) -> Tensor:
    filled = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min / 2)
    return filled.softmax(dim=-2).masked_fill(~allowed.any(dim=-1, keepdim=True), 0.0)


def _over_the_queries_only(scores: Tensor, allowed: Tensor) -> Tensor:
    return scores.masked_fill(~allowed, -1e9).softmax(dim=-2)


def _over_the_queries_infinite(scores: Tensor, allowed: Tensor) -> Tensor:
    return scores.masked_fill(~allowed, -torch.inf).softmax(dim=-2)


def _bare_exp(scores: Tensor, allowed: Tensor) -> Tensor:
    weights = scores.exp() * allowed
    return weights / weights.sum(dim=-1, keepdim=True).clamp_min(1e-30)


def _small_number(scores: Tensor, allowed: Tensor) -> Tensor:
    return scores.masked_fill(~allowed, -20.0).softmax(dim=-1) * allowed


def _hides_too_little(weights: Any) -> bool:
    """Right for small scores, but for what exp(−20) is; finite and wrong for others."""
    scores, allowed = torch.randn(2, 4, 4), torch.ones(2, 4, 4, dtype=torch.bool).tril()
    if distance(weights(scores.clone(), allowed), solution.masked_weights(scores, allowed)) > 1e-2:
        return False
    wrong = False
    for scores in checks.shifted():
        found = weights(scores.clone(), allowed)
        if not found.isfinite().all():
            return False
        wrong |= distance(found, solution.masked_weights(scores, allowed)) > 1e-2
    return wrong


def _detached(scores: Tensor, allowed: Tensor) -> Tensor:
    filled = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min / 2)
    weights = (filled - filled.amax(dim=-1, keepdim=True)).exp()
    weights = weights / weights.sum(dim=-1, keepdim=True).detach()
    return weights.masked_fill(~allowed.any(dim=-1, keepdim=True), 0.0)


def _no_gradient(scores: Tensor, allowed: Tensor) -> Tensor:
    return solution.masked_weights(scores, allowed).detach()


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


WEIGHTS = "masked_weights"
MISTAKES = [
    Mistake("inverted", "causal", _inverted),
    Mistake("not itself", "causal", _without_itself),
    Mistake("not itself", "causal", _top_left_without_itself, second="top left"),
    Mistake("one key too far", "causal", _one_too_far),
    Mistake("top left", "causal", _top_left),
    Mistake("upper triangle", "causal", _upper),
    Mistake("offset backwards", "causal", _offset_backwards),
    Mistake("everything allowed", "causal", _no_mask),
    Mistake("numbers, not a Bool", "causal", _whole_numbers),
    Mistake("numbers, not a Bool", "causal", _floats),
    Mistake("numbers, not a Bool", "causal", _floats_top_left, second="top left"),
    Mistake("True where padding", "real_keys", _true_where_padding),
    Mistake("queries hidden", "real_keys", _pads_hide_queries),
    Mistake("the allowed are filled", WEIGHTS, _allowed_filled),
    Mistake("the allowed are filled", WEIGHTS, _allowed_filled_then_zeros),
    Mistake("mask forgotten", WEIGHTS, _not_masked),
    Mistake("no softmax", WEIGHTS, _no_softmax),
    Mistake("added as 0 and 1", WEIGHTS, _added_as_0_and_1),
    Mistake("scores set to 0", WEIGHTS, _multiplied),
    Mistake("after the softmax", WEIGHTS, _after_the_softmax),
    Mistake("-inf", WEIGHTS, _infinite),
    Mistake("inf times 0", WEIGHTS, _infinity_times_0),
    Mistake("large negative only", WEIGHTS, _large_only),
    Mistake("softmax over queries", WEIGHTS, _over_the_queries),
    Mistake("softmax over queries", WEIGHTS, _over_the_queries_only, second="large negative only"),
    Mistake("softmax over queries", WEIGHTS, _over_the_queries_infinite, second="-inf"),
    Mistake("bare exp", WEIGHTS, _bare_exp, probe=checks.probe_shifted),
    Mistake("too small a number", WEIGHTS, _small_number, fits=_hides_too_little),
    Mistake("sum detached", WEIGHTS, _detached, probe=checks.probe_gradients),
    Mistake("no gradient", WEIGHTS, _no_gradient, probe=checks.probe_gradients),
]
