"""Defects of encoder-decoders."""

import torch
from torch import nn

from tests.doctor.specimens.healthy import (
    LIMIT,
    PAD,
    Attention,
    Block,
    Seq2Seq,
    causal,
)
from tests.doctor.specimens.layers import ResidualAfterNorm, Sinusoids, UnscaledSinusoids
from tests.doctor.specimens.specimen import Specimen


class QueryLength(Attention):
    """Keys and values are reshaped with the query's length."""

    def forward(self, x, memory, allowed=None, past=None):
        batch, length, width = x.shape
        shape = (batch, length, self.n_heads, width // self.n_heads)
        q, k, v = (
            part(given).reshape(shape).transpose(1, 2)
            for part, given in ((self.query, x), (self.key, memory), (self.value, memory))
        )
        weights = self.normalise(self.mask(self.scores(q, k), allowed), allowed)
        return self.output(self.merge(self.drop(weights) @ v)), None


class OneSequence(Seq2Seq):
    def forward(self, tokens):
        return super().forward(tokens, tokens)


class AddsTheMemory(Block):
    """In place of cross-attention: position i gets the encoder's position i."""

    def look(self, x, memory, allowed):
        return x + self.cross(self.norm_c(memory), memory, allowed)[0]


class TakesNoMask(Seq2Seq):
    def forward(self, source, target):
        return super().forward(source, target)


class SourceUnmasked(Seq2Seq):
    def masks(self, *given):
        keys, past, _ = super().masks(*given)
        return keys, past, None


class LooksAtItself(Block):
    def look(self, x, memory, allowed):
        h = self.norm_c(x)
        return x + self.dropout(self.cross(h, h, causal(x.shape[1], x.shape[1]))[0])


class LooksAtItselfOpenly(Block):
    def look(self, x, memory, allowed):
        h = self.norm_c(x)
        return x + self.dropout(self.cross(h, h)[0])


class CausalCross(Seq2Seq):
    def masks(self, source, target, source_mask, target_mask):
        keys, past, seen = super().masks(source, target, source_mask, target_mask)
        ahead = torch.ones(target.shape[1], source.shape[1], dtype=torch.bool).tril()
        return keys, past, ahead if seen is None else seen & ahead


class EncodesTheTarget(Seq2Seq):
    """The target's mean is added to the source, as a hint that will not be there later."""

    def forward(self, source, target, source_mask=None, target_mask=None):
        keys, past, seen = self.masks(source, target, source_mask, target_mask)
        memory = self.encode(source, keys)
        hint = self.encode(target, None).mean(dim=1, keepdim=True)
        return self.decode(target, self.encoder_norm(memory + hint), past, seen)


class NoEncoder(Seq2Seq):
    """The decoder is given zeros in place of what the encoder said."""

    def decode(self, target, memory, allowed, memory_allowed):
        return super().decode(target, torch.zeros_like(memory), allowed, memory_allowed)


class NoCausalMask(Seq2Seq):
    def masks(self, *given):
        keys, past, seen = super().masks(*given)
        return keys, torch.ones_like(past), seen


class Generating(Seq2Seq):
    def __init__(self, **settings):
        super().__init__(**settings)
        self.encoder_input = nn.Identity()

    def read(self, source, written):
        return source

    def encode(self, source, allowed):
        return super().encode(self.encoder_input(source), allowed)

    @torch.no_grad()
    def generate(self, source, max_new_tokens, eos_id=None):
        training = self.training
        self.eval()
        written = torch.full((len(source), 1), 1)
        for _ in range(min(max_new_tokens, LIMIT - 1)):
            token = self(self.read(source, written), written)[:, -1].argmax(dim=-1, keepdim=True)
            written = torch.cat((written, token), dim=1)
            if eos_id is not None and bool((token == eos_id).all()):
                break
        self.train(training)
        return written


class WritesToTheEncoder(Generating):
    def read(self, source, written):
        return torch.cat((source, written), dim=1)


SPECIMENS = [
    Specimen(
        "keys reshaped with the query's length",
        "encoder-decoder",
        lambda: Seq2Seq(attention=QueryLength),
        Seq2Seq,
        "lengths.source_target",
        errata=2,
    ),
    Specimen(
        "one sequence for encoder and decoder",
        "encoder-decoder",
        OneSequence,
        Seq2Seq,
        "causal.one_sequence",
        errata=3,
    ),
    Specimen(
        "no padding mask",
        "encoder-decoder",
        TakesNoMask,
        Seq2Seq,
        "padding.no_mask",
        errata=8,
        how={"pad_id": PAD},
    ),
    Specimen(
        "a source whose padding the decoder sees",
        "encoder-decoder",
        SourceUnmasked,
        Seq2Seq,
        "padding.right",
        how={"pad_id": PAD},
    ),
    Specimen(
        "a target as long as the source",
        "encoder-decoder",
        lambda: Seq2Seq(block=AddsTheMemory),
        Seq2Seq,
        "lengths.source_target",
        errata=9,
    ),
    Specimen(
        "sinusoids that drown the tokens of both",
        "encoder-decoder",
        lambda: Seq2Seq(embedding=UnscaledSinusoids),
        lambda: Seq2Seq(embedding=Sinusoids),
        "embedding_scale.drowned",
        "encoder",
        errata=11,
    ),
    Specimen(
        "generated tokens go to the encoder",
        "encoder-decoder",
        WritesToTheEncoder,
        Generating,
        "encodes_once.grows",
        errata=14,
    ),
    Specimen(
        "cross-attention that reads the decoder",
        "encoder-decoder",
        lambda: Seq2Seq(block=LooksAtItself),
        Seq2Seq,
        "source.unused",
        "decoder.0",
    ),
    Specimen(
        "cross-attention that reads the decoder's future",
        "encoder-decoder",
        lambda: Seq2Seq(block=LooksAtItselfOpenly),
        Seq2Seq,
        "causal.leak",
        "decoder.0.cross",
    ),
    Specimen(
        "a causal mask on the source",
        "encoder-decoder",
        CausalCross,
        Seq2Seq,
        "weights.source_hidden",
        "decoder.0.cross",
    ),
    Specimen(
        "the target is encoded with the source",
        "encoder-decoder",
        EncodesTheTarget,
        Seq2Seq,
        "target_leak.encoder",
    ),
    Specimen(
        "an encoder that nobody listens to",
        "encoder-decoder",
        NoEncoder,
        Seq2Seq,
        "gradients.none",
        errata=28,
    ),
    Specimen(
        "no causal mask in the decoder",
        "encoder-decoder",
        NoCausalMask,
        Seq2Seq,
        "causal.leak",
        "decoder.0.attention",
    ),
    Specimen(
        "residual taken after the norm, in both towers",
        "encoder-decoder",
        lambda: Seq2Seq(block=ResidualAfterNorm),
        Seq2Seq,
        "residual.after_norm",
        "encoder.0",
        errata=1,
    ),
]
