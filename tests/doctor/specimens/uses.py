"""Defects of padding, caches, losses and generation."""

import torch
import torch.nn.functional as F

from clearhead.doctor import Calls
from tests.doctor.specimens.healthy import (
    PAD,
    Attention,
    BeamDecoder,
    CachedDecoder,
    Decoder,
    Encoder,
    GeneratingDecoder,
    LabelDecoder,
    LossDecoder,
    PaddedDecoder,
    WeightsDecoder,
)
from tests.doctor.specimens.specimen import Specimen


class NaNRows(Attention):
    def mask(self, scores, allowed):
        return scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)


class PaddedInTheFirstLayerOnly(Encoder):
    def allowed(self, padding_mask, length, layer):
        return super().allowed(padding_mask, length, layer) if layer == 0 else None


class IgnoresItsMask(Encoder):
    def allowed(self, padding_mask, length, layer):
        return None


class TakesNoMask(Encoder):
    def forward(self, tokens):
        return super().forward(tokens)


class CountsPositionsOverPads(PaddedDecoder):
    def forward(self, tokens, mask=None):
        x = self.embedding(tokens)
        for block in self.blocks:
            x, _ = block(x, self.allowed_and_real(mask, tokens.shape[1]))
        return self.scores(x)


class OffsetByOne(CachedDecoder):
    def start(self, cache):
        return 0 if cache is None else super().start(cache) - 1


class AlwaysFromZero(CachedDecoder):
    def start(self, cache):
        return 0


class TopLeft(CachedDecoder):
    def allowed(self, n_queries, n_keys):
        return torch.ones(n_queries, n_keys, dtype=torch.bool).tril()


class NewTokensUnmasked(CachedDecoder):
    """With a cache, everything is allowed: right for one new token, wrong for several."""

    def allowed(self, n_queries, n_keys):
        if n_queries < n_keys:
            return torch.ones(n_queries, n_keys, dtype=torch.bool)
        return super().allowed(n_queries, n_keys)


class MeanOverAll(LossDecoder):
    def loss(self, logits, targets):
        total = F.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=-100, reduction="sum"
        )
        return total / targets.numel()


class NothingLeft(LossDecoder):
    """The padding id as the ignored target, and a mean over what is left."""

    def loss(self, logits, targets):
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=PAD)


class PadLoss(LossDecoder):
    def loss(self, logits, targets):
        total = F.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=PAD, reduction="sum"
        )
        return total / (targets != PAD).sum().clamp(min=1)


class ShiftedByNone(LabelDecoder):
    shift = 0


class ShiftedByTwo(LabelDecoder):
    shift = 2


class LossOfProbabilities(LossDecoder):
    def loss(self, logits, targets):
        return super().loss(logits.softmax(dim=-1), targets)


class Smoothed(LossDecoder):
    """No defect: label smoothing."""

    def loss(self, logits, targets):
        total = F.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), reduction="sum", label_smoothing=0.1
        )
        return total / (targets != -100).sum().clamp(min=1)


class DroppedWeights(WeightsDecoder):
    class Keeping(Attention):
        def drop(self, weights):
            self.kept = self.dropout(weights)
            return self.kept

    def __init__(self):
        super().__init__(attention=self.Keeping)


class StaysInTraining(GeneratingDecoder):
    def before(self):
        pass


class LeavesEvaluation(GeneratingDecoder):
    def after(self, was_training):
        pass


class DividesByZero(GeneratingDecoder):
    def distribution(self, logits, temperature, top_k):
        return super().distribution(logits, temperature or 1e-50, top_k)


class TakesAnyTopK(GeneratingDecoder):
    def distribution(self, logits, temperature, top_k):
        if top_k is not None:
            best = logits.topk(top_k).values
            logits = logits.masked_fill(logits < best[:, -1:], -torch.inf)
        return super().distribution(logits, temperature, None)


class RunsOn(GeneratingDecoder):
    def is_done(self, token, eos_id):
        return False


class NeverCrops(GeneratingDecoder):
    def crop(self, tokens):
        return tokens


class SeesTheLastThree(GeneratingDecoder):
    def crop(self, tokens):
        return tokens[:, -3:]


class KeepsItsCache(BeamDecoder):
    def reorder(self, cache, rows):
        return cache


def accumulate(model, batches, by_token):
    """One step over several micro-batches."""
    n_targets = sum((targets != -100).sum() for _, targets in batches)
    for inputs, targets in batches:
        logits = model(inputs.tokens).flatten(0, 1)
        total = F.cross_entropy(logits, targets.flatten(), ignore_index=-100, reduction="sum")
        mean = total / (targets != -100).sum() / len(batches)
        (total / n_targets if by_token else mean).backward()


def accumulating(by_token):
    return Calls(
        logits=lambda model, inputs: model(inputs.tokens),
        accumulate=lambda model, batches: accumulate(model, batches, by_token),
    )


class AveragesBatches(Decoder):
    calls = accumulating(by_token=False)


class SumsTokens(Decoder):
    calls = accumulating(by_token=True)


SPECIMENS = [
    Specimen(
        "rows of padding that are NaN",
        "decoder",
        lambda: PaddedDecoder(attention=NaNRows),
        PaddedDecoder,
        "padding_finite.spreads",
    ),
    Specimen(
        "positions counted over pads on the left",
        "decoder",
        CountsPositionsOverPads,
        PaddedDecoder,
        "padding.left",
    ),
    Specimen(
        "padding masked in the first layer only",
        "encoder",
        PaddedInTheFirstLayerOnly,
        Encoder,
        "padding.right",
        how={"pad_id": PAD},
    ),
    Specimen(
        "a padding mask that is not used",
        "encoder",
        IgnoresItsMask,
        Encoder,
        "padding.right",
        how={"pad_id": PAD},
    ),
    Specimen(
        "no padding mask in an encoder",
        "encoder",
        TakesNoMask,
        Encoder,
        "padding.no_mask",
        errata=8,
        how={"pad_id": PAD},
    ),
    Specimen(
        "positions off by one with a cache", "decoder", OffsetByOne, CachedDecoder, "cache.one"
    ),
    Specimen(
        "positions from 0 with a cache", "decoder", AlwaysFromZero, CachedDecoder, "cache.one"
    ),
    Specimen(
        "causal mask aligned to the top left with a cache",
        "decoder",
        TopLeft,
        CachedDecoder,
        "cache.one",
        errata=29,
    ),
    Specimen(
        "several new tokens see each other",
        "decoder",
        NewTokensUnmasked,
        CachedDecoder,
        "cache.several",
    ),
    Specimen(
        "loss divided by ignored targets too",
        "decoder",
        MeanOverAll,
        LossDecoder,
        "ignored_targets.divided_by_all",
    ),
    Specimen(
        "no target left",
        "decoder",
        NothingLeft,
        PadLoss,
        "ignored_targets.none_left",
        errata=26,
        how={"pad_id": PAD},
    ),
    Specimen(
        "labels shifted by none", "decoder", ShiftedByNone, LabelDecoder, "loss_value.shift_0"
    ),
    Specimen("labels shifted by two", "decoder", ShiftedByTwo, LabelDecoder, "loss_value.shift_2"),
    Specimen(
        "softmax inside the loss",
        "decoder",
        LossOfProbabilities,
        Smoothed,
        "loss_value.probabilities",
    ),
    Specimen(
        "micro-batches averaged by batch",
        "decoder",
        AveragesBatches,
        SumsTokens,
        "accumulation.differs",
        errata=31,
    ),
    Specimen(
        "weights returned after dropout",
        "decoder",
        DroppedWeights,
        WeightsDecoder,
        "returned_weights.train",
        errata=25,
    ),
    Specimen(
        "dropout on in generation",
        "decoder",
        StaysInTraining,
        GeneratingDecoder,
        "greedy.train",
        errata=12,
    ),
    Specimen(
        "generation that ends training",
        "decoder",
        LeavesEvaluation,
        GeneratingDecoder,
        "greedy.mode",
    ),
    Specimen(
        "generation that forgets its prompt",
        "decoder",
        SeesTheLastThree,
        GeneratingDecoder,
        "greedy.not_best",
    ),
    Specimen(
        "a temperature of 0",
        "decoder",
        DividesByZero,
        GeneratingDecoder,
        "temperature.zero",
        errata=13,
    ),
    Specimen("a top_k of 0", "decoder", TakesAnyTopK, GeneratingDecoder, "top_k.zero", errata=13),
    Specimen(
        "a top_k above the vocabulary", "decoder", TakesAnyTopK, GeneratingDecoder, "top_k.large"
    ),
    Specimen(
        "no stop at the end", "decoder", RunsOn, GeneratingDecoder, "stops.runs_on", errata=14
    ),
    Specimen(
        "generation past the limit",
        "decoder",
        NeverCrops,
        GeneratingDecoder,
        "past_the_limit.crash",
        errata=22,
    ),
    Specimen(
        "beams that do not reorder their cache",
        "decoder",
        KeepsItsCache,
        BeamDecoder,
        "beams.score",
        errata=30,
    ),
]
