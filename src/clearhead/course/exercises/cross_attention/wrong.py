"""Wrong answers to exercise 4."""

import math
from typing import Any

import torch
from torch import Tensor

from clearhead.course.checking import Mistake, combined
from clearhead.course.earlier import masked_weights, merge_heads, split_heads
from clearhead.course.exercises.cross_attention import checks
from clearhead.course.exercises.cross_attention.solution import CrossAttention


class _QueryLength(CrossAttention):
    def forward(self, x: Tensor, source: Tensor, allowed: Tensor) -> Tensor:
        batch, length, width = x.shape

        def cut(t: Tensor) -> Tensor:
            return t.view(batch, length, self.n_heads, width // self.n_heads).transpose(1, 2)

        q, k, v = cut(self.query(x)), cut(self.key(source)), cut(self.value(source))
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        return self.output(merge_heads(masked_weights(scores, allowed[:, None]) @ v))


class _SourceIgnored(CrossAttention):
    def forward(self, x: Tensor, source: Tensor, allowed: Tensor) -> Tensor:
        everything = torch.ones(x.shape[0], 1, x.shape[1], dtype=torch.bool)
        return super().forward(x, x, everything)


class _KeysOfX(CrossAttention):
    def forward(self, x: Tensor, source: Tensor, allowed: Tensor) -> Tensor:
        return super().forward(x, x, allowed)


class _Swapped(CrossAttention):
    def forward(self, x: Tensor, source: Tensor, allowed: Tensor) -> Tensor:
        everything = torch.ones(x.shape[0], 1, x.shape[1], dtype=torch.bool)
        return super().forward(source, x, everything)


class _NeverSplit(CrossAttention):
    def forward(self, x: Tensor, source: Tensor, allowed: Tensor) -> Tensor:
        q, k, v = self.query(x), self.key(source), self.value(source)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        return self.output(masked_weights(scores, allowed) @ v)


def _build(**wrong: Any) -> type[CrossAttention]:
    """The reference in steps, one or two of which are replaced."""

    class Wrong(CrossAttention):
        def forward(self, x: Tensor, source: Tensor, allowed: Tensor) -> Tensor:
            n = self.n_heads
            asks, answers = wrong.get("matrices", lambda m: (m.query, m.key))(self)
            q, k = split_heads(asks(x), n), split_heads(answers(source), n)
            v = split_heads(wrong.get("values", _values)(self, x, source), n)
            scores = q @ k.transpose(-2, -1) / wrong.get("scale", _root)(self, q, x)
            weights = wrong.get("mask", _masked)(scores, allowed)
            return wrong.get("end", _end)(self, wrong.get("merge", merge_heads)(weights @ v), x)

    return Wrong


def _values(m: CrossAttention, x: Tensor, source: Tensor) -> Tensor:
    return m.value(source)


def _root(m: CrossAttention, q: Tensor, x: Tensor) -> float:
    return math.sqrt(q.shape[-1])


def _masked(scores: Tensor, allowed: Tensor) -> Tensor:
    return masked_weights(scores, allowed[:, None])


def _infinite(scores: Tensor, allowed: Tensor) -> Tensor:
    return scores.masked_fill(~allowed[:, None], -torch.inf).softmax(dim=-1)


def _end(m: CrossAttention, merged: Tensor, x: Tensor) -> Tensor:
    return m.output(merged)


WRONG_STEPS = {
    "mask": {
        "mask forgotten": lambda s, a: s.softmax(dim=-1),
        "masked after the softmax": lambda s, a: s.softmax(dim=-1) * a[:, None],
    },
    "values": {"keys as values": lambda m, x, source: m.key(source)},
    "matrices": {"query and key matrices swapped": lambda m: (m.key, m.query)},
    "merge": {"merged in memory order": lambda x: x.reshape(x.shape[0], x.shape[2], -1)},
    "scale": {
        "no scale": lambda m, q, x: 1.0,
        "√d_model": lambda m, q, x: math.sqrt(x.shape[-1]),
        "divided by d_head": lambda m, q, x: q.shape[-1],
    },
    "end": {
        "no output matrix": lambda m, merged, x: merged,
        "residual inside": lambda m, merged, x: x + m.output(merged),
    },
}
CLASS = "CrossAttention"
# These raise an error for some sizes, behind which another mistake would not be seen.
ALONE = {
    "no axis for heads in the mask": _build(mask=masked_weights),
    "axis for heads after the queries": _build(mask=lambda s, a: masked_weights(s, a[:, :, None])),
    "values from x": _build(values=lambda m, x, source: m.value(x)),
    "view without contiguous": _build(
        merge=lambda x: x.transpose(1, 2).view(x.shape[0], x.shape[2], -1)
    ),
}
MISTAKES = [
    Mistake("keys cut with the query's length", CLASS, _QueryLength),
    Mistake("source ignored", CLASS, _SourceIgnored),
    Mistake("roles swapped", CLASS, _Swapped),
    Mistake("mask of another length", CLASS, _KeysOfX),
    Mistake("never split", CLASS, _NeverSplit),
    *(Mistake(name, CLASS, wrong) for name, wrong in ALONE.items()),
    *combined(CLASS, _build, WRONG_STEPS),
    Mistake("-inf", CLASS, _build(mask=_infinite), probe=checks.probe_nothing),
]
