"""Defects around the layers: how a model begins, what is made of labels, what a whole sequence is
summed up in, and what generation reads."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from tests.doctor.specimens.healthy import (
    HEADS,
    LAYERS,
    LIMIT,
    PAD,
    VOCAB,
    WIDTH,
    Block,
    Decoder,
    Encoder,
    GeneratingDecoder,
    Seq2Seq,
    causal,
)
from tests.doctor.specimens.specimen import Specimen

CLASSES = 5


class OneForward(nn.Module):
    """All layers in one forward, with torch's own kernel, and a scaled embedding."""

    factor = 1.0

    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCAB, WIDTH), nn.Embedding(LIMIT, WIDTH)
        nn.init.normal_(self.tokens.weight, std=WIDTH**-0.5)
        self.inputs = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH) for _ in range(LAYERS))
        self.outputs = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(LAYERS + 1))

    def forward(self, tokens):
        batch, length = tokens.shape
        x = self.tokens(tokens) * math.sqrt(WIDTH) + self.positions.weight[:length]
        for norm, into, out in zip(self.norms, self.inputs, self.outputs):
            q, k, v = into(norm(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q * self.factor, k, v, is_causal=True)
            x = x + out(y.transpose(1, 2).reshape(batch, length, WIDTH))
        return self.norms[-1](x) @ self.tokens.weight.t()


class ScaledTwice(OneForward):
    factor = (WIDTH // HEADS) ** -0.5


class Head(nn.Module):
    scale = 0.0

    def __init__(self):
        super().__init__()
        d_head = WIDTH // HEADS
        self.query, self.key, self.value = (nn.Linear(WIDTH, d_head) for _ in range(3))

    def forward(self, x):
        scores = self.query(x) @ self.key(x).transpose(-2, -1) * self.scale
        allowed = causal(x.shape[1], x.shape[1])
        return scores.masked_fill(~allowed, -torch.inf).softmax(dim=-1) @ self.value(x)


class RightHead(Head):
    scale = (WIDTH // HEADS) ** -0.5


class SharpHead(Head):
    scale = WIDTH**0.5


class HeadsApart(nn.Module):
    """Each head is a module of its own."""

    def __init__(self, head, **_):
        super().__init__()
        self.heads = nn.ModuleList(head() for _ in range(HEADS))
        self.output, self.norm = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x, allowed=None):
        h = self.norm(x)
        return x + self.output(torch.cat([head(h) for head in self.heads], dim=-1)), None


class FirstTokens(GeneratingDecoder):
    def crop(self, tokens):
        return tokens[:, :LIMIT]


class GatedBlock(Block):
    """Both branches begin at zero, by a gate that learns."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.gates = nn.Parameter(torch.zeros(2))

    def attend(self, x, allowed, past):
        h = self.norm_1(x)
        change, past = self.attention(h, h, allowed, past)
        return x + self.gates[0] * self.dropout(change), past

    def feed(self, x):
        return x + self.gates[1] * self.dropout(self.ff(self.norm_2(x)))


class TwiceGatedBlock(GatedBlock):
    def __init__(self, **settings):
        super().__init__(**settings)
        for last in (self.attention.output, self.ff[2]):
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)


class Sinusoids(nn.Module):
    """Sines and cosines in turn."""

    dtype = torch.float32
    table: torch.Tensor

    def __init__(self, width=WIDTH):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, width)
        angles = torch.arange(LIMIT)[:, None] / 10000 ** (torch.arange(0, width, 2) / width)
        table = torch.zeros(LIMIT, width, dtype=self.dtype)
        table[:, 0::2], table[:, 1::2] = angles.sin(), angles.cos()
        self.register_buffer("table", table)

    def forward(self, tokens, start=0, mask=None):
        return self.tokens(tokens) + self.table[: tokens.shape[1]]


class WholeNumbers(Sinusoids):
    dtype = torch.long


def with_frozen_vectors(*, trained):
    """Vectors of words share a direction; random ones do not."""

    def build():
        model = Encoder()
        vectors = torch.randn(VOCAB, WIDTH) * 0.1
        vectors[PAD] = 0
        if trained:
            vectors[PAD + 1 :] += 0.3 * torch.randn(WIDTH)
        nn.init.normal_(model.embedding.positions.weight, std=0.1)
        model.embedding.tokens = nn.Embedding.from_pretrained(vectors, padding_idx=PAD)
        return model

    return build


class Vectors(Encoder):
    """tokens → their states, and one vector for all that are real"""

    def pool(self, states, real):
        return (states * real[..., None]).sum(dim=1) / real.sum(dim=1, keepdim=True)

    def forward(self, tokens, attention_mask=None):
        real = torch.ones_like(tokens) if attention_mask is None else attention_mask
        x = self.embedding(tokens)
        for block in self.blocks:
            x, _ = block(x, real[:, None, None, :].bool())
        x = self.norm(x)
        return {"states": x, "vector": F.normalize(self.head(self.pool(x, real)), dim=-1)}


class MeanOfAll(Vectors):
    def pool(self, states, real):
        return states.mean(dim=1)


class Classifier(Encoder):
    """tokens, labels → the scores of classes, loss"""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(WIDTH, CLASSES)

    def loss(self, scores, labels):
        return F.cross_entropy(scores, labels)

    def forward(self, tokens, padding_mask=None, labels=None):
        x = self.embedding(tokens)
        for index, block in enumerate(self.blocks):
            x, _ = block(x, self.allowed(padding_mask, tokens.shape[1], index))
        scores = self.head(self.norm(x)[:, 0])
        return {"loss": None if labels is None else self.loss(scores, labels), "logits": scores}


class ClassesOfProbabilities(Classifier):
    def loss(self, scores, labels):
        return super().loss(scores.softmax(dim=-1), labels)


class CausalClassifier(Decoder):
    """The classes of a sequence, read off its last real token"""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(WIDTH, CLASSES)

    def last(self, scores, attention_mask):
        if attention_mask is None:
            return scores[:, -1]
        return scores[torch.arange(len(scores)), attention_mask.sum(dim=1) - 1]

    def forward(self, tokens, attention_mask=None, labels=None):
        scores = self.last(super().forward(tokens), attention_mask)
        loss = None if labels is None else F.cross_entropy(scores, labels)
        return {"loss": loss, "logits": scores}


class LastColumn(CausalClassifier):
    def last(self, scores, attention_mask):
        return scores[:, -1]


class LabelSeq2Seq(Seq2Seq):
    """source, what the decoder reads or labels → logits, loss"""

    def read(self, labels):
        read = torch.cat((torch.full_like(labels[:, :1], PAD), labels[:, :-1]), dim=1)
        return read.masked_fill(read == -100, PAD)

    def forward(self, source, source_mask=None, decoder_input_ids=None, labels=None):
        read = self.read(labels) if decoder_input_ids is None else decoder_input_ids
        output = {"logits": super().forward(source, read, source_mask)}
        if labels is not None:
            targets = labels.flatten()
            total = F.cross_entropy(output["logits"].flatten(0, 1), targets, reduction="sum")
            output["loss"] = total / (targets != -100).sum().clamp(min=1)
        return output


class Unmoved(LabelSeq2Seq):
    def read(self, labels):
        return labels.masked_fill(labels == -100, PAD)


class LossOfTarget(Seq2Seq):
    """source, target → logits of all but its last token, loss"""

    ignored = PAD

    def forward(self, source, target):
        read, targets = target[:, :-1], target[:, 1:]
        logits = super().forward(source, read, source != PAD)
        loss = F.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=self.ignored, label_smoothing=0.1
        )
        return {"logits": logits, "loss": loss}


class CountsPadding(LossOfTarget):
    ignored = -100


class FillsMasks(Seq2Seq):
    """Every token of the target sees all of it; only what a mask token hides is predicted."""

    mask_id = 1

    def targets(self, target, labels):
        return labels.masked_fill(target != self.mask_id, -100)

    def masks(self, source, target, source_mask, target_mask):
        return None, None, None

    def forward(self, source, target, labels=None):
        logits = super().forward(source, target)
        if labels is None:
            return logits, None
        targets = self.targets(target, labels)
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class LearnsAll(FillsMasks):
    def targets(self, target, labels):
        return labels


class ThirdMask(Seq2Seq):
    """The mask of the source, true at padding, goes in for the encoder and again for the decoder"""

    def masks(self, source, target, source_mask, target_mask):
        def keys(hidden):
            return None if hidden is None else ~hidden[:, None]

        return keys(source_mask), causal(target.shape[1], target.shape[1]), keys(self.seen)

    def forward(self, src, tgt, src_mask=None, src_tgt_mask=None):
        self.seen = src_tgt_mask
        return super().forward(src, tgt, src_mask)


class ThirdMaskUnread(ThirdMask):
    def forward(self, src, tgt, src_mask=None, src_tgt_mask=None):
        return super().forward(src, tgt, src_mask)


def of_heads(head):
    return lambda: Decoder(block=lambda **_: HeadsApart(head))


SPECIMENS = [
    Specimen(
        "scores scaled by hand and by the kernel",
        "decoder",
        ScaledTwice,
        OneForward,
        "attention_scale.d_head",
    ),
    Specimen(
        "scores multiplied by the root of d_model",
        "decoder",
        of_heads(SharpHead),
        of_heads(RightHead),
        "attention_scale.multiplied",
        "blocks.0.heads.0",
    ),
    Specimen(
        "a context cropped at the wrong end",
        "decoder",
        FirstTokens,
        GeneratingDecoder,
        "past_the_limit.first",
    ),
    Specimen(
        "a gate and a projection that are both zero",
        "decoder",
        lambda: Decoder(block=TwiceGatedBlock),
        lambda: Decoder(block=GatedBlock),
        "gradients.stuck",
        "blocks",
    ),
    Specimen(
        "sinusoids in a table of integers",
        "encoder",
        lambda: Encoder(embedding=WholeNumbers),
        lambda: Encoder(embedding=Sinusoids),
        "sinusoids.whole",
    ),
    Specimen(
        "random vectors that are frozen",
        "encoder",
        with_frozen_vectors(trained=False),
        with_frozen_vectors(trained=True),
        "gradients.frozen",
        "embedding.tokens",
    ),
    Specimen("a mean over padding", "encoder", MeanOfAll, Vectors, "padding.right"),
    Specimen(
        "softmax inside a classifier's loss",
        "encoder",
        ClassesOfProbabilities,
        Classifier,
        "loss_value.probabilities",
    ),
    Specimen(
        "the class of the last column, which is padding",
        "decoder",
        LastColumn,
        CausalClassifier,
        "padding.right",
    ),
    Specimen(
        "labels that are read unmoved",
        "encoder-decoder",
        Unmoved,
        LabelSeq2Seq,
        "target_leak.labels",
    ),
    Specimen(
        "padding that counts as a target",
        "encoder-decoder",
        CountsPadding,
        LossOfTarget,
        "ignored_targets.counted",
        how={"pad_id": PAD},
    ),
    Specimen(
        "a decoder that sees all and learns all",
        "encoder-decoder",
        LearnsAll,
        FillsMasks,
        "causal.leak",
    ),
    Specimen(
        "a mask of the source that the decoder does not read",
        "encoder-decoder",
        ThirdMaskUnread,
        ThirdMask,
        "padding.right",
    ),
]
