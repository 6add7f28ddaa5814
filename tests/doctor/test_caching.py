"""Each convention of keeping a cache has a model that follows it, and one that forgets a token."""

import pytest
import torch
from torch import nn

from clearhead.doctor import examine
from clearhead.doctor.caching import CONVENTIONS
from tests.doctor.specimens.healthy import CachedDecoder
from tests.doctor.test_calling import PlacesAndCache


def detached(cache):
    return [tuple(tensor.detach() for tensor in layer) for layer in cache]


class Cleared(CachedDecoder):
    kept = None

    def reset_cache(self):
        self.kept = None

    def forward(self, tokens, use_cache=False):
        logits, grown = super().forward(tokens, self.kept if use_cache else None)
        if use_cache:
            self.kept = detached(grown)
        return logits


class Counted(CachedDecoder):
    kept = None

    def forward(self, tokens, start_pos=0):
        logits, grown = super().forward(tokens, self.kept if start_pos else None)
        self.kept = detached(grown)
        return logits


class Made(CachedDecoder):
    def new_cache(self, batch, length):
        return []

    def forward(self, tokens, cache=None):
        logits, grown = super().forward(tokens, cache or None)
        if cache is not None:
            cache[:] = grown
        return logits


FOLLOWS = {
    "ClearedCache": (Cleared, "model.reset_cache(); model(…, use_cache=True)"),
    "PlacedCache": (PlacesAndCache, "model(…, input_pos=…)"),
    "CountedCache": (Counted, "model(…, start_pos=…)"),
    "MadeCache": (Made, "cache = model.new_cache(…)"),
    "ReturnedCache": (CachedDecoder, "model(…, cache=…)"),
}


def test_each_convention_has_a_model():
    assert [type(convention).__name__ for convention in CONVENTIONS] == list(FOLLOWS)


@pytest.mark.parametrize("name", FOLLOWS)
def test_a_model_that_follows_a_convention_is_fed_by_it(name):
    model, shown = FOLLOWS[name]
    torch.manual_seed(0)
    report = examine(model(), kind="decoder", only=["cache"])
    assert report.recognised["cache"] == shown
    assert [outcome.status for outcome in report.outcomes] == ["passed"]


class Forgets(nn.Module):
    """Positions of new tokens begin at zero, whatever is in the cache."""

    def start(self, cache):
        return 0


@pytest.mark.parametrize("name", ["ClearedCache", "CountedCache", "MadeCache", "ReturnedCache"])
def test_positions_that_begin_anew_are_found_in_each_convention(name):
    model = type("Forgetful", (Forgets, FOLLOWS[name][0]), {})
    torch.manual_seed(0)
    report = examine(model(), kind="decoder", only=["cache"])
    assert "cache.one" in [finding.case for finding in report.findings], report.recognised


class Generates(CachedDecoder):
    """Greedy. The cache is the model's own, and begins anew with each text, or does not."""

    kept, place, clears = None, 0, True

    def start(self, cache):
        return self.place

    def forward(self, tokens, place=0, cache=None):
        self.place = place
        return super().forward(tokens, cache)

    def next_of(self, tokens, place):
        logits, self.kept = self(tokens, place, self.kept)
        return logits[:, -1:].argmax(dim=-1)

    @torch.no_grad()
    def generate(self, tokens, max_new_tokens):
        if self.clears:
            self.kept = None
        new = self.next_of(tokens, 0)
        for _ in range(max_new_tokens - 1):
            tokens = torch.cat((tokens, new), dim=1)
            new = self.next_of(new, tokens.shape[1] - 1)
        return torch.cat((tokens, new), dim=1)


class NeverClears(Generates):
    clears = False


@pytest.mark.parametrize("seed", range(8))
def test_a_cache_that_outlives_a_text_is_found_with_each_seed(seed):
    for build, cases in ((Generates, set()), (NeverClears, {"greedy.eval"})):
        torch.manual_seed(seed)
        report = examine(build(), kind="decoder", seed=seed, only=["greedy"])
        assert {f.case for f in report.findings} & {"greedy.eval"} == cases
