"""Defects of attention, in a decoder unless their name says otherwise."""

import math

import torch
from torch import nn

from tests.doctor.specimens.healthy import (
    HEADS,
    Attention,
    Block,
    Decoder,
    Encoder,
    causal,
)
from tests.doctor.specimens.specimen import Specimen

FIRST = "blocks.0.attention"


class OffByOne(Decoder):
    def allowed(self, n_queries, n_keys):
        return torch.ones(n_queries, n_keys, dtype=torch.bool).tril(1)


class Transposed(Decoder):
    def allowed(self, n_queries, n_keys):
        return causal(n_queries, n_keys).transpose(0, 1)


class NoMask(Decoder):
    def allowed(self, n_queries, n_keys):
        return None


class NotItself(Decoder):
    def allowed(self, n_queries, n_keys):
        return torch.ones(n_queries, n_keys, dtype=torch.bool).tril(-1)


class MaskedInEvaluationOnly(Decoder):
    def allowed(self, n_queries, n_keys):
        return None if self.training else causal(n_queries, n_keys)


class ZeroOneMask(Attention):
    def mask(self, scores, allowed):
        return scores + allowed.to(scores.dtype)


class InvertedMask(Attention):
    def mask(self, scores, allowed):
        return scores.masked_fill(allowed, torch.finfo(scores.dtype).min)


class SoftmaxOverQueries(Attention):
    def normalise(self, scores, allowed):
        return scores.softmax(dim=-2)


class MaskedAfterSoftmax(Attention):
    """The weights of pads are taken away, and their share of the sum is not given back."""

    def mask(self, scores, allowed):
        return scores

    def normalise(self, scores, allowed):
        weights = scores.softmax(dim=-1)
        return weights if allowed is None else weights.masked_fill(~allowed, 0.0)


class NoScale(Attention):
    def scores(self, q, k):
        return q @ k.transpose(-2, -1)


class ScaledByModelWidth(Attention):
    def scores(self, q, k):
        return q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1] * self.n_heads)


class Multiplied(Attention):
    def scores(self, q, k):
        return q @ k.transpose(-2, -1) * math.sqrt(q.shape[-1])


class MergedWithoutTranspose(Attention):
    def merge(self, x):
        batch, heads, length, width = x.shape
        return x.reshape(batch, length, heads * width)


class SplitWithoutTranspose(Attention):
    def split(self, x):
        batch, length, width = x.shape
        return x.view(batch, self.n_heads, length, width // self.n_heads)


class OverHeads(Attention):
    """Without the transpose, each position's heads look at each other."""

    def split(self, x):
        batch, length, width = x.shape
        return x.view(batch, length, self.n_heads, width // self.n_heads)

    def mask(self, scores, allowed):
        return scores

    def merge(self, x):
        return x.flatten(2)


class FunctionalDropout(Attention):
    def drop(self, weights):
        return nn.functional.dropout(weights, 0.1)


class NoAttention(Block):
    def attend(self, x, allowed, past):
        return x + self.norm_1(x), past


class CausalEncoder(Encoder):
    def allowed(self, padding_mask, length, layer):
        past = causal(length, length)
        keys = super().allowed(padding_mask, length, layer)
        return past if keys is None else past & keys


def wide(attention):
    """Heads of 64, as in the paper: at a width of 8 the scale hardly matters."""
    return lambda: Decoder(attention=attention, width=64 * HEADS)


SPECIMENS = [
    Specimen("off-by-one causal mask", "decoder", OffByOne, Decoder, "causal.ahead", FIRST),
    Specimen("transposed causal mask", "decoder", Transposed, Decoder, "causal.leak", FIRST),
    Specimen("no causal mask", "decoder", NoMask, Decoder, "causal.leak", FIRST),
    Specimen(
        "mask added as 0 and 1",
        "decoder",
        lambda: Decoder(attention=ZeroOneMask),
        Decoder,
        "causal.leak",
        FIRST,
    ),
    Specimen(
        "mask the wrong way round",
        "decoder",
        lambda: Decoder(attention=InvertedMask),
        Decoder,
        "causal.leak",
        FIRST,
    ),
    Specimen(
        "a token cannot see itself", "decoder", NotItself, Decoder, "weights.not_itself", FIRST
    ),
    Specimen(
        "masked in evaluation only",
        "decoder",
        MaskedInEvaluationOnly,
        Decoder,
        "knows_the_future.below_entropy",
    ),
    Specimen(
        "softmax over the queries",
        "decoder",
        lambda: Decoder(attention=SoftmaxOverQueries),
        Decoder,
        "weights.axis",
        FIRST,
    ),
    Specimen(
        "softmax over the queries of an encoder",
        "encoder",
        lambda: Encoder(attention=SoftmaxOverQueries),
        Encoder,
        "weights.axis",
        FIRST,
    ),
    Specimen(
        "pads masked after the softmax",
        "encoder",
        lambda: Encoder(attention=MaskedAfterSoftmax),
        Encoder,
        "pad_value.matters",
        how={"pad_id": 0},
    ),
    Specimen(
        "scores not divided by √d_head",
        "decoder",
        wide(NoScale),
        wide(Attention),
        "attention_scale.missing",
        FIRST,
    ),
    Specimen(
        "scores divided by √d_model",
        "decoder",
        wide(ScaledByModelWidth),
        wide(Attention),
        "attention_scale.d_model",
        FIRST,
    ),
    Specimen(
        "scores multiplied by √d_head",
        "decoder",
        wide(Multiplied),
        wide(Attention),
        "attention_scale.multiplied",
        FIRST,
    ),
    Specimen(
        "heads merged without a transpose",
        "decoder",
        lambda: Decoder(attention=MergedWithoutTranspose),
        Decoder,
        "causal.leak",
        FIRST,
    ),
    Specimen(
        "heads of an encoder merged without a transpose",
        "encoder",
        lambda: Encoder(attention=MergedWithoutTranspose),
        Encoder,
        "mixing.outside_attention",
        FIRST,
    ),
    Specimen(
        "heads split without a transpose",
        "decoder",
        lambda: Decoder(attention=SplitWithoutTranspose),
        Decoder,
        "causal.leak",
        FIRST,
    ),
    Specimen(
        "attention over the heads",
        "encoder",
        lambda: Encoder(attention=OverHeads),
        Encoder,
        "context.alone",
        FIRST,
    ),
    Specimen(
        "functional dropout without training=",
        "decoder",
        lambda: Decoder(attention=FunctionalDropout),
        Decoder,
        "determinism.eval",
        FIRST,
    ),
    Specimen(
        "a decoder without attention",
        "decoder",
        lambda: Decoder(block=NoAttention),
        Decoder,
        "context.alone",
        errata=28,
    ),
    Specimen(
        "an encoder that looks back only",
        "encoder",
        CausalEncoder,
        Encoder,
        "context.backwards_only",
    ),
]
