"""Wrong answers to exercise 7."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.course.checking import Mistake, combined
from clearhead.course.earlier import causal
from clearhead.course.exercises.decoder_layer import checks
from clearhead.course.exercises.decoder_layer.solution import PreNormDecoderLayer


def _past(x: Tensor, real: Tensor) -> Tensor:
    n = x.shape[1]
    return causal(n, n) & real[:, None]


def _source(x: Tensor, memory: Tensor, real_source: Tensor) -> Tensor:
    return real_source[:, None]


def _ask_itself(layer: PreNormDecoderLayer, x: Tensor, allowed: Tensor) -> Tensor:
    normed = layer.norm1(x)
    return layer.self_attention(normed, normed, allowed)


def _ask_memory(layer: PreNormDecoderLayer, x: Tensor, memory: Tensor, allowed: Tensor) -> Tensor:
    return layer.cross_attention(layer.norm2(x), memory, allowed)


def _feed_forward(layer: PreNormDecoderLayer, x: Tensor) -> Tensor:
    return layer.down(layer.up(x).relu())


def _end(layer: PreNormDecoderLayer, x: Tensor) -> Tensor:
    return x + layer.feed_forward(layer.norm3(x))


def _build(**wrong: Any) -> type[PreNormDecoderLayer]:
    """The reference in steps, one or two of which are replaced."""

    class Wrong(PreNormDecoderLayer):
        def feed_forward(self, x: Tensor) -> Tensor:
            return wrong.get("activation", _feed_forward)(self, x)

        def forward(self, x: Tensor, memory: Tensor, real: Tensor, real_source: Tensor) -> Tensor:
            past = wrong.get("past", _past)(x, real)
            x = x + wrong.get("itself", _ask_itself)(self, x, past)
            allowed = wrong.get("source", _source)(x, memory, real_source)
            x = x + wrong.get("memory", _ask_memory)(self, x, memory, allowed)
            return wrong.get("end", _end)(self, x)

    return Wrong


class _Overwritten(PreNormDecoderLayer):
    def forward(self, x: Tensor, memory: Tensor, real: Tensor, real_source: Tensor) -> Tensor:
        past = _past(x, real)
        x = self.norm1(x)
        x = x + self.self_attention(x, x, past)
        x = self.norm2(x)
        x = x + self.cross_attention(x, memory, real_source[:, None])
        x = self.norm3(x)
        return x + self.feed_forward(x)


class _PostNorm(PreNormDecoderLayer):
    def forward(self, x: Tensor, memory: Tensor, real: Tensor, real_source: Tensor) -> Tensor:
        x = self.norm1(x + self.self_attention(x, x, _past(x, real)))
        x = self.norm2(x + self.cross_attention(x, memory, real_source[:, None]))
        return self.norm3(x + self.feed_forward(x))


class _CrossFirst(PreNormDecoderLayer):
    def forward(self, x: Tensor, memory: Tensor, real: Tensor, real_source: Tensor) -> Tensor:
        x = x + self.cross_attention(self.norm2(x), memory, real_source[:, None])
        x = x + _ask_itself(self, x, _past(x, real))
        return x + self.feed_forward(self.norm3(x))


class _TargetMaskOnTheSource(PreNormDecoderLayer):
    def forward(self, x: Tensor, memory: Tensor, real: Tensor, real_source: Tensor) -> Tensor:
        x = x + _ask_itself(self, x, _past(x, real))
        x = x + self.cross_attention(self.norm2(x), memory, real[:, None])
        return x + self.feed_forward(self.norm3(x))


class _NoResiduals(PreNormDecoderLayer):
    def forward(self, x: Tensor, memory: Tensor, real: Tensor, real_source: Tensor) -> Tensor:
        x = _ask_itself(self, x, _past(x, real))
        x = self.cross_attention(self.norm2(x), memory, real_source[:, None])
        return self.feed_forward(self.norm3(x))


class _RunsTwice(PreNormDecoderLayer):
    def forward(self, x: Tensor, memory: Tensor, real: Tensor, real_source: Tensor) -> Tensor:
        _ask_itself(self, x, _past(x, real))
        return super().forward(x, memory, real, real_source)


def _triangle(x: Tensor, memory: Tensor, real_source: Tensor) -> Tensor:
    triangle = torch.ones(x.shape[1], memory.shape[1], dtype=torch.bool).tril()
    return triangle & real_source[:, None]


def _triangle_from_the_end(x: Tensor, memory: Tensor, real_source: Tensor) -> Tensor:
    return causal(x.shape[1], memory.shape[1]) & real_source[:, None]


WRONG_STEPS = {
    "past": {
        "not causal": lambda x, real: real[:, None],
        "joined with or": lambda x, real: causal(x.shape[1], x.shape[1]) | real[:, None],
        "target padding forgotten": lambda x, real: causal(x.shape[1], x.shape[1])[None],
    },
    "itself": {
        "keys not normalised": lambda m, x, a: m.self_attention(m.norm1(x), x, a),
        "no norm before self-attention": lambda m, x, a: m.self_attention(x, x, a),
    },
    "source": {
        "causal cross-attention": _triangle,
        "source mask forgotten": lambda x, memory, real: torch.ones_like(real)[:, None],
    },
    "memory": {
        "one norm used twice": lambda m, x, s, a: m.cross_attention(m.norm1(x), s, a),
        "memory normalised again": lambda m, x, s, a: m.cross_attention(m.norm2(x), m.norm2(s), a),
    },
    "activation": {
        "no activation": lambda m, x: m.down(m.up(x)),
        "activation last": lambda m, x: m.down(m.up(x)).relu(),
        "GELU for ReLU": lambda m, x: m.down(F.gelu(m.up(x))),
    },
    "end": {"last residual missing": lambda m, x: m.feed_forward(m.norm3(x))},
}
LAYER = "PreNormDecoderLayer"
MISTAKES = [
    Mistake("residual after the norm", LAYER, _Overwritten),
    Mistake("post-norm", LAYER, _PostNorm),
    Mistake("cross-attention first", LAYER, _CrossFirst),
    Mistake("target's mask on the source", LAYER, _TargetMaskOnTheSource),
    Mistake("no residual", LAYER, _NoResiduals),
    *combined(LAYER, _build, WRONG_STEPS),
    Mistake("causal cross-attention", LAYER, _build(source=_triangle_from_the_end)),
    Mistake("attention runs twice", LAYER, _RunsTwice, probe=checks.probe_calls),
]
