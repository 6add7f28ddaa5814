"""Wrong answers to exercise 1."""

import math

from torch import Tensor

from clearhead.course.checking import Mistake
from clearhead.course.exercises.attention.solution import attention_weights


def _scores(queries: Tensor, keys: Tensor) -> Tensor:
    return queries @ keys.transpose(-2, -1)


def _root(queries: Tensor) -> float:
    return math.sqrt(queries.shape[-1])


def _over_queries(queries: Tensor, keys: Tensor) -> Tensor:
    return (_scores(queries, keys) / _root(queries)).softmax(dim=-2)


def _unscaled(queries: Tensor, keys: Tensor) -> Tensor:
    return _scores(queries, keys).softmax(dim=-1)


def _divided_by_d(queries: Tensor, keys: Tensor) -> Tensor:
    return (_scores(queries, keys) / queries.shape[-1]).softmax(dim=-1)


def _scaled_afterwards(queries: Tensor, keys: Tensor) -> Tensor:
    return _scores(queries, keys).softmax(dim=-1) / _root(queries)


def _not_transposed(queries: Tensor, keys: Tensor) -> Tensor:
    return (queries @ keys / _root(queries)).softmax(dim=-1)


def _weights_times_scores(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    return (attention_weights(queries, keys) * _scores(queries, keys) / _root(queries)) @ values


MISTAKES = [
    Mistake("softmax over queries", "attention_weights", _over_queries),
    Mistake("no scale", "attention_weights", _unscaled),
    Mistake("divided by d", "attention_weights", _divided_by_d),
    Mistake("scaled after the softmax", "attention_weights", _scaled_afterwards),
    Mistake("no transpose", "attention_weights", _not_transposed),
    Mistake("weights times scores", "attention", _weights_times_scores),
]
