"""Defects of caches in real use, and of losses over rows of different lengths."""

import torch
import torch.nn.functional as F

from tests.doctor.specimens.healthy import LAYERS, CachedDecoder, LossDecoder
from tests.doctor.specimens.specimen import Specimen


class SquareMask(CachedDecoder):
    """A mask for the new tokens only, which fits no cache."""

    def allowed(self, n_queries, n_keys):
        return super().allowed(n_queries, n_queries)


class PaddedCachedDecoder(CachedDecoder):
    """tokens, which of all so far are real, a cache → logits, and the cache"""

    def real(self, mask, n_keys, n_new):
        return mask

    def forward(self, tokens, mask=None, cache=None):
        old = 0 if cache is None else cache[0][0].shape[2]
        n_new, n_keys = tokens.shape[1], old + tokens.shape[1]
        if mask is None:
            mask = torch.ones(len(tokens), n_keys, dtype=torch.bool)
        places = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, -n_new:]
        x = self.embedding.dropout(self.embedding.tokens(tokens) + self.embedding.positions(places))
        seen = self.real(mask, n_keys, n_new)[:, None, None, :]
        grown = []
        for index, block in enumerate(self.blocks):
            allowed = self.allowed(n_new, n_keys) & seen
            x, past = block(x, allowed, past=None if cache is None else cache[index])
            grown.append(past)
        return self.scores(x), grown


class ForgetsOldPads(PaddedCachedDecoder):
    def real(self, mask, n_keys, n_new):
        if n_keys == n_new:
            return mask
        return torch.cat((torch.ones_like(mask[:, :-n_new]), mask[:, -n_new:]), dim=1)


class Store:
    """A cache that can change the places of its rows."""

    def __init__(self):
        self.layers = [None] * LAYERS

    def reorder(self, rows):
        self.layers = [(k[rows], v[rows]) for k, v in self.layers]


class KeysOnly(Store):
    def reorder(self, rows):
        self.layers = [(k[rows], v) for k, v in self.layers]


class StoringDecoder(CachedDecoder):
    store = Store

    def new_cache(self, batch_size, capacity):
        return self.store()

    def forward(self, tokens, cache=None):
        if cache is None or cache.layers[0] is None:
            logits, grown = super().forward(tokens)
        else:
            logits, grown = super().forward(tokens, cache.layers)
        if cache is not None:
            cache.layers = grown
        return logits


class StoresKeysOnly(StoringDecoder):
    store = KeysOnly


class Smooths(LossDecoder):
    """Label smoothing by hand, over the targets that count."""

    def spread(self, log_p, kept):
        return -log_p.mean(dim=-1)[kept].sum()

    def loss(self, logits, targets):
        log_p, kept = logits.log_softmax(dim=-1), targets != -100
        hard = F.nll_loss(log_p.flatten(0, 1), targets.flatten(), reduction="sum")
        return (0.9 * hard + 0.1 * self.spread(log_p, kept)) / kept.sum().clamp(min=1)


class SmoothsIgnored(Smooths):
    def spread(self, log_p, kept):
        return -log_p.mean(dim=-1).sum()


class MeanOfRows(LossDecoder):
    def loss(self, logits, targets):
        kept = targets != -100
        each = F.cross_entropy(logits.transpose(1, 2), targets, reduction="none")
        return (each.sum(dim=1) / kept.sum(dim=1).clamp(min=1)).mean()


SPECIMENS = [
    Specimen("a mask that fits no cache", "decoder", SquareMask, CachedDecoder, "cache.fails"),
    Specimen(
        "a cache that forgets its pads",
        "decoder",
        ForgetsOldPads,
        PaddedCachedDecoder,
        "cache.padded",
    ),
    Specimen(
        "a cache that reorders its keys only",
        "decoder",
        StoresKeysOnly,
        StoringDecoder,
        "cache.reordered",
    ),
    Specimen(
        "label smoothing of ignored targets",
        "decoder",
        SmoothsIgnored,
        Smooths,
        "ignored_targets.smoothed",
    ),
    Specimen(
        "a loss that averages averages", "decoder", MeanOfRows, LossDecoder, "accumulation.by_row"
    ),
]
