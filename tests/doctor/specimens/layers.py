"""Defects of layers, embeddings, norms and dropout."""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn

from tests.doctor.specimens.healthy import (
    LAYERS,
    LIMIT,
    VOCAB,
    WIDTH,
    Block,
    Decoder,
    Embedding,
    Encoder,
    TokensOnly,
)
from tests.doctor.specimens.specimen import Specimen


class ResidualAfterNorm(Block):
    def attend(self, x, allowed, past):
        x = self.norm_1(x)
        change, past = self.attention(x, x, allowed, past)
        return x + self.dropout(change), past

    def feed(self, x):
        x = self.norm_2(x)
        return x + self.dropout(self.ff(x))


class NoResidual(Block):
    def feed(self, x):
        return self.dropout(self.ff(self.norm_2(x)))


class PostNorm(Block):
    """No defect: the paper's own placement."""

    def attend(self, x, allowed, past):
        change, past = self.attention(x, x, allowed, past)
        return self.norm_1(x + self.dropout(change)), past

    def feed(self, x):
        return self.norm_2(x + self.dropout(self.ff(x)))


class OneNorm(Block):
    def feed(self, x):
        return x + self.dropout(self.ff(self.norm_1(x)))

    def __init__(self, **settings):
        super().__init__(**settings)
        del self.norm_2


class BatchNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x):
        return self.norm(x.transpose(1, 2)).transpose(1, 2)


class BatchNormBlock(Block):
    def make_norm(self, width):
        return BatchNorm(width)


class NormOverLength(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return F.layer_norm(x, x.shape[1:]) * self.weight


class NormOverLengthBlock(Block):
    def make_norm(self, width):
        return NormOverLength(width)


class Repeated(Decoder):
    def make_blocks(self, make):
        return nn.ModuleList([make()] * LAYERS)


class PlainList(Decoder):
    def make_blocks(self, make):
        return [make() for _ in range(LAYERS)]


class Detached(Decoder):
    """Meant to save memory."""

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x, _ = block(x.detach(), self.allowed(tokens.shape[1], tokens.shape[1]))
        return self.scores(x)


class TiedByCopy(Decoder):
    def __init__(self):
        super().__init__()
        nn.init.normal_(self.embedding.tokens.weight, std=0.02)
        nn.init.normal_(self.embedding.positions.weight, std=0.02)
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.head.weight.data = self.embedding.tokens.weight.data.clone()


class Tied(Decoder):
    def __init__(self, std=0.02):
        super().__init__()
        nn.init.normal_(self.embedding.tokens.weight, std=std)
        nn.init.normal_(self.embedding.positions.weight, std=0.02)
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.head.weight = self.embedding.tokens.weight


class Probabilities(Decoder):
    def scores(self, x):
        return super().scores(x).softmax(dim=-1)


class Sigmoid(Decoder):
    def scores(self, x):
        return super().scores(x).sigmoid()


class ChangesItsInput(Decoder):
    def forward(self, tokens):
        logits = super().forward(tokens)
        tokens[:, 0] = 1
        return logits


class Squeezes(Decoder):
    def scores(self, x):
        return super().scores(x.squeeze(1))


class DropsTwice(Embedding):
    def forward(self, tokens, start=0, mask=None):
        return self.dropout(super().forward(tokens, start, mask))


class Unscaled(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        if not self.training:
            return x
        return x * (torch.rand_like(x) >= self.p)


class UnscaledDropout(Unscaled):
    pass


class TooMuchDropout(Unscaled):
    def forward(self, x):
        return F.dropout(x, 1 - self.p, self.training)


class Sinusoids(Embedding):
    scale = math.sqrt(WIDTH)

    def __init__(self, width=WIDTH):
        super().__init__(width)
        nn.init.normal_(self.tokens.weight, std=0.02)
        del self.positions
        rates = 10_000 ** (-torch.arange(0, width, 2) / width)
        angles = torch.arange(LIMIT)[:, None] * rates
        self.register_buffer("table", torch.cat((angles.sin(), angles.cos()), dim=1))

    def forward(self, tokens, start=0, mask=None):
        places = torch.arange(start, start + tokens.shape[1])
        return self.dropout(self.tokens(tokens) * self.scale + self.table[places])


class UnscaledSinusoids(Sinusoids):
    scale = 1.0


class UnusedPositions(Embedding):
    def forward(self, tokens, start=0, mask=None):
        return self.dropout(self.tokens(tokens))


class PositionsAtTheEnd(Decoder):
    def __init__(self):
        super().__init__(embedding=TokensOnly)
        self.positions = nn.Embedding(LIMIT, WIDTH)

    def scores(self, x):
        return self.head(self.norm(x) + self.positions(torch.arange(x.shape[1])))


class FixedMask(Decoder):
    """A float mask in single precision, made for good: no other dtype will do."""

    def __init__(self):
        super().__init__()
        for block in self.blocks:
            block.attention.mask = self.add

    @staticmethod
    def add(scores, allowed):
        return scores + torch.zeros(allowed.shape).masked_fill(~allowed, -1e30)


class SmallMask(Decoder):
    """-1e9 is more than half precision holds."""

    def __init__(self):
        super().__init__()
        for block in self.blocks:
            block.attention.mask = lambda scores, allowed: scores.masked_fill(~allowed, -1e9)


def with_dropout(dropout):
    def build():
        model = Decoder()
        for block in model.blocks:
            block.dropout = dropout(0.1)
        return model

    return build


def cloned():
    """No defect: equal initial weights in all layers, as nn.TransformerEncoder makes them."""
    model = Decoder()
    model.blocks = nn.ModuleList([copy.deepcopy(model.blocks[0]) for _ in range(LAYERS)])
    return model


SPECIMENS = [
    Specimen(
        "residual taken after the norm",
        "decoder",
        lambda: Decoder(block=ResidualAfterNorm),
        lambda: Decoder(block=PostNorm),
        "residual.after_norm",
        "blocks.0",
        errata=1,
    ),
    Specimen(
        "residual taken after the norm of an encoder",
        "encoder",
        lambda: Encoder(block=ResidualAfterNorm),
        lambda: Encoder(block=PostNorm),
        "residual.after_norm",
        "blocks.0",
        errata=1,
    ),
    Specimen(
        "no residual around the feed-forward",
        "decoder",
        lambda: Decoder(block=NoResidual),
        Decoder,
        "residual.none",
        "blocks.0",
    ),
    Specimen(
        "one norm for two sublayers",
        "decoder",
        lambda: Decoder(block=OneNorm),
        Decoder,
        "shared.norm",
        "blocks.0.norm_1",
    ),
    Specimen(
        "batch norm",
        "decoder",
        lambda: Decoder(block=BatchNormBlock),
        Decoder,
        "batch.train",
        "blocks.0.norm_1.norm",
    ),
    Specimen(
        "batch norm in an encoder",
        "encoder",
        lambda: Encoder(block=BatchNormBlock),
        Encoder,
        "batch.train",
        "blocks.0.norm_1.norm",
    ),
    Specimen(
        "norm over the length too",
        "decoder",
        lambda: Decoder(block=NormOverLengthBlock),
        Decoder,
        "causal.leak",
        "blocks.0.norm_1",
    ),
    Specimen(
        "norm over the length of an encoder",
        "encoder",
        lambda: Encoder(block=NormOverLengthBlock),
        Encoder,
        "mixing.outside_attention",
        "blocks.0.norm_1",
    ),
    Specimen("one layer many times", "decoder", Repeated, cloned, "shared.layers", "blocks"),
    Specimen(
        "layers in a plain list", "decoder", PlainList, Decoder, "registered.hidden", "blocks"
    ),
    Specimen(
        "detached between layers",
        "decoder",
        Detached,
        Decoder,
        "gradients.none",
        "embedding.tokens.weight",
    ),
    Specimen("tied by copy", "decoder", TiedByCopy, Tied, "tied.copied", "embedding.tokens.weight"),
    Specimen(
        "tied to a table of standard deviation 1",
        "decoder",
        lambda: Tied(std=1.0),
        Tied,
        "first_loss.high",
    ),
    Specimen("probabilities for logits", "decoder", Probabilities, Decoder, "output.probabilities"),
    Specimen("sigmoid before the loss", "decoder", Sigmoid, Decoder, "overfits.not"),
    Specimen("writes into its input", "decoder", ChangesItsInput, Decoder, "determinism.input"),
    Specimen("a squeeze too many", "decoder", Squeezes, Decoder, "lengths.one"),
    Specimen(
        "embedding dropout applied twice",
        "decoder",
        lambda: Decoder(embedding=DropsTwice),
        Decoder,
        "dropout.twice",
        "embedding.dropout",
        errata=10,
    ),
    Specimen(
        "dropout that does not scale what it keeps",
        "decoder",
        with_dropout(UnscaledDropout),
        with_dropout(nn.Dropout),
        "dropout.scale",
        "blocks.0.dropout",
    ),
    Specimen(
        "dropout that keeps what it should drop",
        "decoder",
        with_dropout(TooMuchDropout),
        with_dropout(nn.Dropout),
        "dropout.rate",
        "blocks.0.dropout",
    ),
    Specimen(
        "sinusoids that drown the tokens",
        "decoder",
        lambda: Decoder(embedding=UnscaledSinusoids),
        lambda: Decoder(embedding=Sinusoids),
        "embedding_scale.drowned",
        "blocks",
        errata=11,
    ),
    Specimen(
        "no positions in an encoder",
        "encoder",
        lambda: Encoder(embedding=TokensOnly),
        Encoder,
        "positions.tokens",
        "blocks.0.attention",
    ),
    Specimen(
        "positions added after the last norm",
        "decoder",
        PositionsAtTheEnd,
        Decoder,
        "positions.tokens",
        "blocks.0.attention",
    ),
    Specimen(
        "positions switched off that still own a table",
        "decoder",
        lambda: Decoder(embedding=UnusedPositions),
        Decoder,
        "gradients.none",
        "embedding.positions.weight",
        errata=23,
    ),
    Specimen("a mask in single precision", "decoder", FixedMask, Decoder, "dtypes.weights"),
    Specimen(
        "a mask that half precision cannot hold", "decoder", SmallMask, Decoder, "dtypes.mixed"
    ),
]
