"""Wrong answers to exercise 1."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.course.checking import Mistake
from clearhead.course.exercises.attention.solution import attention_weights


def _scores(queries: Tensor, keys: Tensor) -> Tensor:
    return queries @ keys.transpose(-2, -1)


def _root(queries: Tensor) -> float:
    return math.sqrt(queries.shape[-1])


def _over_queries(queries: Tensor, keys: Tensor) -> Tensor:
    return (_scores(queries, keys) / _root(queries)).softmax(dim=-2)


def _over_the_batch(queries: Tensor, keys: Tensor) -> Tensor:
    return (_scores(queries, keys) / _root(queries)).softmax(dim=0)


def _sigmoid(queries: Tensor, keys: Tensor) -> Tensor:
    return (_scores(queries, keys) / _root(queries)).sigmoid()


def _unscaled(queries: Tensor, keys: Tensor) -> Tensor:
    return _scores(queries, keys).softmax(dim=-1)


def _divided_by_d(queries: Tensor, keys: Tensor) -> Tensor:
    return (_scores(queries, keys) / queries.shape[-1]).softmax(dim=-1)


def _scaled_afterwards(queries: Tensor, keys: Tensor) -> Tensor:
    return _scores(queries, keys).softmax(dim=-1) / _root(queries)


def _not_transposed(queries: Tensor, keys: Tensor) -> Tensor:
    return (queries @ keys / _root(queries)).softmax(dim=-1)


def _multiplied(queries: Tensor, keys: Tensor) -> Tensor:
    return (_scores(queries, keys) * _root(queries)).softmax(dim=-1)


def _root_of_the_keys(queries: Tensor, keys: Tensor) -> Tensor:
    return (_scores(queries, keys) / math.sqrt(keys.shape[1])).softmax(dim=-1)


def _cosine(queries: Tensor, keys: Tensor) -> Tensor:
    return _scores(F.normalize(queries, dim=-1), F.normalize(keys, dim=-1)).softmax(dim=-1)


def _cosine_scaled(queries: Tensor, keys: Tensor) -> Tensor:
    q, k = F.normalize(queries, dim=-1), F.normalize(keys, dim=-1)
    return (_scores(q, k) / _root(queries)).softmax(dim=-1)


def _root_of_an_int(queries: Tensor, keys: Tensor) -> Tensor:
    width: Any = queries.shape[-1]
    return (_scores(queries, keys) / torch.sqrt(width)).softmax(dim=-1)


def _weighs_the_keys(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    return attention_weights(queries, keys) @ keys


def _weights_times_scores(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    return (attention_weights(queries, keys) * _scores(queries, keys) / _root(queries)) @ values


MISTAKES = [
    Mistake("softmax over queries", "attention_weights", _over_queries),
    Mistake("softmax over the batch", "attention_weights", _over_the_batch),
    Mistake("sigmoid", "attention_weights", _sigmoid),
    Mistake("no scale", "attention_weights", _unscaled),
    Mistake("divided by d", "attention_weights", _divided_by_d),
    Mistake("scaled after the softmax", "attention_weights", _scaled_afterwards),
    Mistake("no transpose", "attention_weights", _not_transposed),
    Mistake("multiplied by √d", "attention_weights", _multiplied),
    Mistake("√ of the number of keys", "attention_weights", _root_of_the_keys),
    Mistake("cosine", "attention_weights", _cosine),
    Mistake("cosine", "attention_weights", _cosine_scaled),
    Mistake("torch.sqrt of an int", "attention_weights", _root_of_an_int),
    Mistake("keys weighed", "attention", _weighs_the_keys),
    Mistake("weights times scores", "attention", _weights_times_scores),
]
