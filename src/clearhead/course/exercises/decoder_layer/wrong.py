"""Wrong answers to exercise 7: each changes one step of the reference."""

import torch
from torch import Tensor

from clearhead.course.checking import Mistake
from clearhead.course.earlier import causal
from clearhead.course.exercises.decoder_layer.solution import PreNormDecoderLayer


class _Steps(PreNormDecoderLayer):
    """The reference, one method for each step that a mistake replaces."""

    def past(self, x: Tensor, real: Tensor) -> Tensor:
        n = x.shape[1]
        return causal(n, n) & real[:, None]

    def source(self, x: Tensor, memory: Tensor, real_source: Tensor) -> Tensor:
        return real_source[:, None]

    def ask_memory(self, x: Tensor, memory: Tensor, allowed: Tensor) -> Tensor:
        return self.cross_attention(self.norm2(x), memory, allowed)

    def end(self, x: Tensor) -> Tensor:
        return x + self.feed_forward(self.norm3(x))

    def forward(self, x: Tensor, memory: Tensor, real: Tensor, real_source: Tensor) -> Tensor:
        normed = self.norm1(x)
        x = x + self.self_attention(normed, normed, self.past(x, real))
        x = x + self.ask_memory(x, memory, self.source(x, memory, real_source))
        return self.end(x)


class _Overwritten(PreNormDecoderLayer):
    def forward(self, x: Tensor, memory: Tensor, real: Tensor, real_source: Tensor) -> Tensor:
        n = x.shape[1]
        x = self.norm1(x)
        x = x + self.self_attention(x, x, causal(n, n) & real[:, None])
        x = self.norm2(x)
        x = x + self.cross_attention(x, memory, real_source[:, None])
        x = self.norm3(x)
        return x + self.feed_forward(x)


class _PostNorm(PreNormDecoderLayer):
    def forward(self, x: Tensor, memory: Tensor, real: Tensor, real_source: Tensor) -> Tensor:
        n = x.shape[1]
        x = self.norm1(x + self.self_attention(x, x, causal(n, n) & real[:, None]))
        x = self.norm2(x + self.cross_attention(x, memory, real_source[:, None]))
        return self.norm3(x + self.feed_forward(x))


class _KeysNotNormalised(PreNormDecoderLayer):
    def forward(self, x: Tensor, memory: Tensor, real: Tensor, real_source: Tensor) -> Tensor:
        n = x.shape[1]
        x = x + self.self_attention(self.norm1(x), x, causal(n, n) & real[:, None])
        x = x + self.cross_attention(self.norm2(x), memory, real_source[:, None])
        return x + self.feed_forward(self.norm3(x))


class _CrossFirst(PreNormDecoderLayer):
    def forward(self, x: Tensor, memory: Tensor, real: Tensor, real_source: Tensor) -> Tensor:
        n = x.shape[1]
        x = x + self.cross_attention(self.norm2(x), memory, real_source[:, None])
        normed = self.norm1(x)
        x = x + self.self_attention(normed, normed, causal(n, n) & real[:, None])
        return x + self.feed_forward(self.norm3(x))


class _JoinedWithOr(_Steps):
    def past(self, x: Tensor, real: Tensor) -> Tensor:
        return causal(x.shape[1], x.shape[1]) | real[:, None]


class _TargetMaskOnTheSource(_Steps):
    def forward(self, x: Tensor, memory: Tensor, real: Tensor, real_source: Tensor) -> Tensor:
        normed = self.norm1(x)
        x = x + self.self_attention(normed, normed, self.past(x, real))
        x = x + self.cross_attention(self.norm2(x), memory, real[:, None])
        return self.end(x)


class _ActivationLast(_Steps):
    def feed_forward(self, x: Tensor) -> Tensor:
        return self.down(self.up(x)).relu()


class _NotCausal(_Steps):
    def past(self, x: Tensor, real: Tensor) -> Tensor:
        return real[:, None]


class _PaddingForgotten(_Steps):
    def past(self, x: Tensor, real: Tensor) -> Tensor:
        return causal(x.shape[1], x.shape[1])[None]


class _CausalCross(_Steps):
    def source(self, x: Tensor, memory: Tensor, real_source: Tensor) -> Tensor:
        triangle = torch.ones(x.shape[1], memory.shape[1], dtype=torch.bool).tril()
        return triangle & real_source[:, None]


class _CausalCrossFromTheEnd(_Steps):
    def source(self, x: Tensor, memory: Tensor, real_source: Tensor) -> Tensor:
        return causal(x.shape[1], memory.shape[1]) & real_source[:, None]


class _SourceMaskForgotten(_Steps):
    def source(self, x: Tensor, memory: Tensor, real_source: Tensor) -> Tensor:
        return torch.ones_like(real_source)[:, None]


class _OneNorm(_Steps):
    def ask_memory(self, x: Tensor, memory: Tensor, allowed: Tensor) -> Tensor:
        return self.cross_attention(self.norm1(x), memory, allowed)


class _NormedAgain(_Steps):
    def ask_memory(self, x: Tensor, memory: Tensor, allowed: Tensor) -> Tensor:
        return self.cross_attention(self.norm2(x), self.norm2(memory), allowed)


class _NoActivation(_Steps):
    def feed_forward(self, x: Tensor) -> Tensor:
        return self.down(self.up(x))


class _LastResidual(_Steps):
    def end(self, x: Tensor) -> Tensor:
        return self.feed_forward(self.norm3(x))


MISTAKES = [
    Mistake("not causal", "PreNormDecoderLayer", _NotCausal),
    Mistake("joined with or", "PreNormDecoderLayer", _JoinedWithOr),
    Mistake("residual after the norm", "PreNormDecoderLayer", _Overwritten),
    Mistake("post-norm", "PreNormDecoderLayer", _PostNorm),
    Mistake("keys not normalised", "PreNormDecoderLayer", _KeysNotNormalised),
    Mistake("cross-attention first", "PreNormDecoderLayer", _CrossFirst),
    Mistake("target's mask on the source", "PreNormDecoderLayer", _TargetMaskOnTheSource),
    Mistake("activation last", "PreNormDecoderLayer", _ActivationLast),
    Mistake("target padding forgotten", "PreNormDecoderLayer", _PaddingForgotten),
    Mistake("causal cross-attention", "PreNormDecoderLayer", _CausalCross),
    Mistake("causal cross-attention", "PreNormDecoderLayer", _CausalCrossFromTheEnd),
    Mistake("source mask forgotten", "PreNormDecoderLayer", _SourceMaskForgotten),
    Mistake("one norm used twice", "PreNormDecoderLayer", _OneNorm),
    Mistake("memory normalised again", "PreNormDecoderLayer", _NormedAgain),
    Mistake("no activation", "PreNormDecoderLayer", _NoActivation),
    Mistake("last residual missing", "PreNormDecoderLayer", _LastResidual),
]
