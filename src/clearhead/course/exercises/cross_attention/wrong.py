"""Wrong answers to exercise 4."""

import math

import torch
from torch import Tensor

from clearhead.course.checking import Mistake
from clearhead.course.earlier import masked_weights, merge_heads, split_heads
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


class _MaskForgotten(CrossAttention):
    def forward(self, x: Tensor, source: Tensor, allowed: Tensor) -> Tensor:
        return super().forward(x, source, torch.ones_like(allowed))


class _Pieces(CrossAttention):
    """Where only one line differs."""

    def attend(self, x: Tensor, source: Tensor, allowed: Tensor, width: int) -> Tensor:
        q = split_heads(self.query(x), self.n_heads)
        k = split_heads(self.key(source), self.n_heads)
        v = split_heads(self.values_of(x, source), self.n_heads)
        scores = q @ k.transpose(-2, -1) / math.sqrt(width)
        return self.merge(self.weights(scores, allowed) @ v)

    def values_of(self, x: Tensor, source: Tensor) -> Tensor:
        return self.value(source)

    def weights(self, scores: Tensor, allowed: Tensor) -> Tensor:
        return masked_weights(scores, allowed)

    def merge(self, x: Tensor) -> Tensor:
        return merge_heads(x)

    def forward(self, x: Tensor, source: Tensor, allowed: Tensor) -> Tensor:
        width = x.shape[-1] // self.n_heads
        return self.output(self.attend(x, source, allowed[:, None], width))


class _NoHeadAxis(_Pieces):
    def forward(self, x: Tensor, source: Tensor, allowed: Tensor) -> Tensor:
        return self.output(self.attend(x, source, allowed, x.shape[-1] // self.n_heads))


class _RootOfTheModel(_Pieces):
    def forward(self, x: Tensor, source: Tensor, allowed: Tensor) -> Tensor:
        return self.output(self.attend(x, source, allowed[:, None], x.shape[-1]))


class _NoOutput(_Pieces):
    def forward(self, x: Tensor, source: Tensor, allowed: Tensor) -> Tensor:
        return self.attend(x, source, allowed[:, None], x.shape[-1] // self.n_heads)


class _NeverSplit(CrossAttention):
    def forward(self, x: Tensor, source: Tensor, allowed: Tensor) -> Tensor:
        q, k, v = self.query(x), self.key(source), self.value(source)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        return self.output(masked_weights(scores, allowed) @ v)


class _NoScale(_Pieces):
    def forward(self, x: Tensor, source: Tensor, allowed: Tensor) -> Tensor:
        return self.output(self.attend(x, source, allowed[:, None], 1))


class _ValuesOfX(_Pieces):
    def values_of(self, x: Tensor, source: Tensor) -> Tensor:
        return self.value(x)


class _KeysAsValues(_Pieces):
    def values_of(self, x: Tensor, source: Tensor) -> Tensor:
        return self.key(source)


class _MaskedAfterwards(_Pieces):
    def weights(self, scores: Tensor, allowed: Tensor) -> Tensor:
        return scores.softmax(dim=-1) * allowed


class _MergedInMemoryOrder(_Pieces):
    def merge(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], x.shape[2], -1)


class _AxisBehindTheQueries(_Pieces):
    def forward(self, x: Tensor, source: Tensor, allowed: Tensor) -> Tensor:
        width = x.shape[-1] // self.n_heads
        return self.output(self.attend(x, source, allowed[:, :, None], width))


MISTAKES = [
    Mistake("keys cut with the query's length", "CrossAttention", _QueryLength),
    Mistake("source ignored", "CrossAttention", _SourceIgnored),
    Mistake("roles swapped", "CrossAttention", _Swapped),
    Mistake("mask of another length", "CrossAttention", _KeysOfX),
    Mistake("mask forgotten", "CrossAttention", _MaskForgotten),
    Mistake("no axis for heads in the mask", "CrossAttention", _NoHeadAxis),
    Mistake("axis for heads behind the queries", "CrossAttention", _AxisBehindTheQueries),
    Mistake("masked after the softmax", "CrossAttention", _MaskedAfterwards),
    Mistake("values from x", "CrossAttention", _ValuesOfX),
    Mistake("keys as values", "CrossAttention", _KeysAsValues),
    Mistake("merged in memory order", "CrossAttention", _MergedInMemoryOrder),
    Mistake("no scale", "CrossAttention", _NoScale),
    Mistake("never split", "CrossAttention", _NeverSplit),
    Mistake("√d_model", "CrossAttention", _RootOfTheModel),
    Mistake("no output matrix", "CrossAttention", _NoOutput),
]
