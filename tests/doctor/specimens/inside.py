"""Defects that hide inside: rotations, norms, gradients, modes."""

import torch
from torch import nn

from tests.doctor.specimens.healthy import (
    HEADS,
    WIDTH,
    Attention,
    Block,
    Decoder,
    Embedding,
    Encoder,
    Seq2Seq,
    TokensOnly,
    WeightsDecoder,
)
from tests.doctor.specimens.specimen import Specimen


class RotaryAttention(Attention):
    sign = -1

    def rotate(self, x):
        half = x.shape[-1] // 2
        frequency = 100 ** -(torch.arange(half, dtype=x.dtype) / half)
        angle = torch.arange(x.shape[2], dtype=x.dtype)[:, None] * frequency
        one, two = x[..., :half], x[..., half:]
        cos, sin = angle.cos(), angle.sin()
        return torch.cat((one * cos + self.sign * two * sin, two * cos + one * sin), dim=-1)

    def scores(self, q, k):
        return super().scores(self.rotate(q), self.rotate(k))


class NoMinus(RotaryAttention):
    sign = 1


class KeysUnturned(RotaryAttention):
    def scores(self, q, k):
        return Attention.scores(self, self.rotate(q), k)


class AlibiAttention(Attention):
    def slopes(self):
        return 2.0 ** -(torch.arange(1, HEADS + 1))

    def scores(self, q, k):
        places = torch.arange(k.shape[2])
        distance = (places[:, None] - places).abs()
        slopes = self.slopes().to(q.dtype)
        return super().scores(q, k) - slopes[:, None, None] * distance


class OneSlope(AlibiAttention):
    def slopes(self):
        return torch.full((HEADS,), 0.5)


class ScaledInEvaluation(Embedding):
    """Classic dropout's scale in evaluation, on top of nn.Dropout's own in training."""

    def forward(self, tokens, start=0, mask=None):
        x = super().forward(tokens, start, mask)
        return x if self.training else x * (1 - self.dropout.p)


class ForgetsDropout(Embedding):
    def forward(self, tokens, start=0, mask=None):
        return self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))


class Square(torch.autograd.Function):
    """A hand-written backward, and what is forgotten in it."""

    factor = 2

    @classmethod
    def forward(cls, ctx, x):
        ctx.save_for_backward(x)
        return x.square()

    @classmethod
    def backward(cls, ctx, grad):
        (x,) = ctx.saved_tensors
        return cls.factor * x * grad


class WrongSquare(Square):
    factor = 1


class Squared(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function.apply(x.relu())


def with_activation(function):
    def build():
        model = Decoder()
        for block in model.blocks:
            block.ff[1] = Squared(function)
        return model

    return build


class GainNorm(nn.Module):
    offset = 1.0

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        x = x * x.square().mean(dim=-1, keepdim=True).add(1e-6).rsqrt()
        return x * (self.offset + self.weight)


class HalfGainNorm(GainNorm):
    offset = 0.5


class GainBlock(Block):
    def make_norm(self, width):
        return GainNorm(width)


class HalfGainBlock(Block):
    def make_norm(self, width):
        return HalfGainNorm(width)


class NoFinalNorm(Decoder):
    def __init__(self):
        super().__init__()
        del self.norm

    def scores(self, x):
        return self.head(x)


class NoEncoderNorm(Seq2Seq):
    def __init__(self):
        super().__init__()
        self.encoder_norm = nn.Identity()


class Around(nn.Module):
    """A norm, and the residual connection around a sublayer."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x, sublayer):
        return x + sublayer(self.norm(x))


class WrappedBlock(nn.Module):
    def __init__(self, *, width=WIDTH, shared=False):
        super().__init__()
        self.attention = Attention(width)
        self.ff = nn.Sequential(nn.Linear(width, 40), nn.GELU(), nn.Linear(40, width))
        self.around_attention = Around(width)
        self.around_ff = self.around_attention if shared else Around(width)

    def forward(self, x, allowed=None):
        x = self.around_attention(x, lambda h: self.attention(h, h, allowed)[0])
        return self.around_ff(x, self.ff), None


class OtherWeights(WeightsDecoder):
    """Hands out weights that are computed once more, without the mask."""

    class Keeping(Attention):
        def mask(self, scores, allowed):
            self.kept = scores
            return super().mask(scores, allowed)

    def __init__(self):
        super().__init__(attention=self.Keeping)

    def forward(self, tokens, return_attention=False):
        logits = Decoder.forward(self, tokens)
        if not return_attention:
            return logits
        return logits, [block.attention.kept.softmax(dim=-1) for block in self.blocks]


def rotary(attention):
    return lambda: Decoder(embedding=TokensOnly, attention=attention)


def alibi(attention):
    return lambda: Encoder(embedding=TokensOnly, attention=attention)


SPECIMENS = [
    Specimen(
        "a rotation without its minus",
        "decoder",
        rotary(NoMinus),
        rotary(RotaryAttention),
        "relative.places",
        "blocks.0.attention",
    ),
    Specimen(
        "queries turned and keys not",
        "encoder",
        alibi(KeysUnturned),
        alibi(RotaryAttention),
        "positions.tokens",
        "blocks.0.attention",
    ),
    Specimen(
        "one slope for all heads",
        "encoder",
        alibi(OneSlope),
        alibi(AlibiAttention),
        "relative.one_slope",
        "blocks.0.attention",
    ),
    Specimen(
        "scaled in evaluation as well",
        "decoder",
        lambda: Decoder(embedding=ScaledInEvaluation),
        Decoder,
        "modes.differ",
        "embedding",
    ),
    Specimen(
        "a dropout layer that is never called",
        "decoder",
        lambda: Decoder(embedding=ForgetsDropout),
        Decoder,
        "dropout.unused",
        "embedding.dropout",
    ),
    Specimen(
        "a backward pass with a wrong factor",
        "decoder",
        with_activation(WrongSquare),
        with_activation(Square),
        "gradient_value.differs",
    ),
    Specimen(
        "norms that begin at half their size",
        "decoder",
        lambda: Decoder(block=HalfGainBlock),
        lambda: Decoder(block=GainBlock),
        "norms.size",
        "blocks.0.norm_1",
    ),
    Specimen(
        "pre-norm layers without a final norm",
        "decoder",
        NoFinalNorm,
        Decoder,
        "residual.no_final_norm",
        "blocks.1",
    ),
    Specimen(
        "a pre-norm encoder without a final norm",
        "encoder-decoder",
        NoEncoderNorm,
        Seq2Seq,
        "residual.no_final_norm",
        "encoder.1",
    ),
    Specimen(
        "one norm in a wrapper for two sublayers",
        "decoder",
        lambda: Decoder(block=lambda **how: WrappedBlock(shared=True, **how)),
        lambda: Decoder(block=WrappedBlock),
        "shared.norm",
        "blocks.0.around_attention.norm",
    ),
    Specimen(
        "weights that are not those in use",
        "decoder",
        OtherWeights,
        WeightsDecoder,
        "returned_weights.others",
    ),
]
