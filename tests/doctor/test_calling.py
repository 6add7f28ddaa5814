"""Ways of calling that the plain command knows: each has a model that is left in peace, and a
defect that is found in it. What is not known is answered with an adapter that was tried."""

import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearhead.doctor import calling, examine
from clearhead.doctor.recognition import RecognitionError, recognise
from clearhead.errors import ClearheadError
from tests.doctor.specimens import healthy
from tests.doctor.specimens.healthy import LIMIT, VOCAB, WIDTH, causal
from tests.doctor.test_signatures import TokensAndLengths

CHECKS = ["causal", "context", "positions", "batch", "lengths", "padding", "cache", "gradients"]


class Leaks:
    def allowed(self, n_queries, n_keys):
        return torch.ones(n_queries, n_keys, dtype=torch.bool)


class Places(healthy.Decoder):
    """Where each token stands is the caller's business, as in gpt-fast."""

    def forward(self, tokens, input_pos=None):
        n = tokens.shape[1]
        x = self.embedding.tokens(tokens) + self.embedding.positions(input_pos)
        for block in self.blocks:
            x, _ = block(x, self.allowed(n, n))
        return self.scores(x)


class PlacesOfEachRow(Places):
    def forward(self, tokens, positions):
        assert positions.shape == tokens.shape
        return super().forward(tokens, positions)


class KeepsItsKeys(healthy.Attention):
    """Memory of a fixed size, written at the places that the caller names."""

    def __init__(self, width=WIDTH, **settings):
        super().__init__(width, **settings)
        self.register_buffer("kept", torch.zeros(3, LIMIT, width), persistent=False)

    def forward(self, x, memory, allowed=None, past=None):
        places, kept = past, self.kept.to(memory).clone()
        kept[:, places] = memory
        if not self.training:
            self.kept = kept.detach()
        return super().forward(x, kept, allowed[places])


class PlacesAndCache(Places):
    """A batch of exactly three, and keys inside the model."""

    max_batch_size = 3

    def __init__(self):
        super().__init__(attention=KeepsItsKeys)

    def forward(self, tokens, input_pos):
        x = self.embedding.tokens(tokens) + self.embedding.positions(input_pos)
        for block in self.blocks:
            x, _ = block(x, self.allowed(LIMIT, LIMIT), past=input_pos)
        return self.scores(x)


class OneLength(healthy.Decoder):
    """The mask has one size, and so have all batches."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mask", causal(LIMIT, LIMIT))

    def allowed(self, n_queries, n_keys):
        return self.mask

    def forward(self, tokens):
        assert tokens.shape[1] == LIMIT
        return super().forward(tokens)


class SizeUnsaid(nn.Module):
    """The same, and nothing but torch's error says which size."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, WIDTH)
        self.places = nn.Parameter(torch.randn(1, 20, WIDTH))
        self.block, self.head = healthy.Block(), nn.Linear(WIDTH, VOCAB)
        self.norm = nn.LayerNorm(WIDTH)

    def allowed(self, n_queries, n_keys):
        return causal(n_queries, n_keys)

    def forward(self, tokens):
        x, _ = self.block(self.tokens(tokens) + self.places, self.allowed(20, 20))
        return self.head(self.norm(x))


class Segments(healthy.Encoder):
    def __init__(self):
        super().__init__()
        self.sentences = nn.Embedding(2, WIDTH)

    def forward(self, x, seg, mask):
        h = self.embedding(x) + self.sentences(seg)
        for block in self.blocks:
            h, _ = block(h, self.visible(mask))
        return self.head(self.norm(h))

    def visible(self, mask):
        return mask[:, None, None, :].bool()


class SeesPadding(Segments):
    def visible(self, mask):
        return None


class Pairs(nn.Module):
    """(batch, length, 2): tokens and positions, in one table."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(VOCAB + LIMIT, WIDTH)
        self.block, self.norm = healthy.Block(), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCAB + LIMIT)

    def allowed(self, n_queries, n_keys):
        return causal(n_queries, n_keys)

    def forward(self, x):
        n = x.shape[1]
        h, _ = self.block(self.table(x).sum(dim=2), self.allowed(n, n))
        return self.head(self.norm(h))


class Inner(healthy.Encoder):
    def forward(self, tokens, mask=None):
        return super().forward(tokens, None if mask is None else ~mask)


class HandsOn(nn.Module):
    """A mask goes through its **kwargs to the model inside."""

    def __init__(self, inner=Inner):
        super().__init__()
        self.inner = inner()

    def forward(self, tokens, return_states=False, **kwargs):
        return self.inner(tokens, **kwargs)


class Forgetful(Inner):
    def allowed(self, padding_mask, length, layer):
        return None if layer else super().allowed(padding_mask, length, layer)


class Swallows(HandsOn):
    """Takes anything, and reads nothing of it."""

    def forward(self, tokens, **kwargs):
        return self.inner(tokens)


class TwoParts(nn.Module):
    """No forward: the encoder and the decoder are called one after the other."""

    class Encoding(nn.Module):
        def __init__(self, pair):
            super().__init__()
            self.parts = nn.ModuleList([pair.embedding, pair.encoder, pair.encoder_norm])

        def forward(self, input_ids, src_padding_mask=None):
            embedding, blocks, norm = self.parts
            x = embedding(input_ids)
            for block in blocks:
                hidden = src_padding_mask
                x, _ = block(x, None if hidden is None else hidden[:, None, None, :])
            return norm(x)

    class Decoding(nn.Module):
        def __init__(self, pair):
            super().__init__()
            self.parts = nn.ModuleList([pair.target_embedding, pair.decoder, pair.norm, pair.head])

        def forward(self, input_tokens, encoder_states, src_padding_mask=None, future_mask=None):
            embedding, blocks, norm, head = self.parts
            x, seen = embedding(input_tokens), src_padding_mask
            for block in blocks:
                keys = None if seen is None else seen[:, None, None, :]
                x, _ = block(x, future_mask, encoder_states, keys)
            return head(norm(x))

    def __init__(self):
        super().__init__()
        pair = healthy.Seq2Seq()
        self.encoder, self.decoder = self.Encoding(pair), self.Decoding(pair)


def leaking(model: type[nn.Module]) -> type[nn.Module]:
    return type(f"Leaking{model.__name__}", (Leaks, model), {})


WAYS = {
    "places": (Places, "decoder", "input_pos=…"),
    "places of each row": (PlacesOfEachRow, "decoder", "model(tokens)"),
    "places and a cache": (PlacesAndCache, "decoder", "model(tokens)"),
    "one length": (OneLength, "decoder", "model(tokens)"),
    "one length, unsaid": (SizeUnsaid, "decoder", "model(tokens)"),
    "pairs": (Pairs, "decoder", "each token beside its place"),
    "segments": (Segments, "encoder", "model(x, mask)"),
    "masks by **kwargs": (HandsOn, "encoder", "model(tokens)"),
    "an encoder and a decoder": (TwoParts, "encoder-decoder", "model.decoder(model.encoder(…), …)"),
}


class LastOnly(healthy.Decoder):
    """The logits of all positions come back with targets only, as in nanoGPT."""

    def forward(self, tokens, targets=None):
        logits = super().forward(tokens)
        if targets is None:
            return logits[:, -1:], None
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


FOLLOWS = {
    "TwoSequences": (healthy.Seq2Seq, "encoder-decoder"),
    "OneSequence": (healthy.Decoder, "decoder"),
    "WithTargets": (LastOnly, "decoder"),
    "WithPlaces": (Places, "decoder"),
    "InPairs": (Pairs, "decoder"),
    "InATuple": (TokensAndLengths, "encoder"),
    "ByMethods": (TwoParts, "encoder-decoder"),
}


def test_each_convention_has_a_model():
    conventions = (*calling.WAYS, *calling.WITHOUT_FORWARD)
    assert [type(convention).__name__ for convention in conventions] == list(FOLLOWS)


@pytest.mark.parametrize("name", FOLLOWS)
def test_a_model_that_follows_a_convention_is_called_by_it_and_by_no_other(name, monkeypatch):
    model, kind = FOLLOWS[name]
    torch.manual_seed(0)
    known = recognise(model(), kind=kind).recognised
    lists = {which: getattr(calling, which) for which in ("WAYS", "WITHOUT_FORWARD")}
    for which, ways in lists.items():
        alone = tuple(way for way in ways if type(way).__name__ == name)
        monkeypatch.setattr(calling, which, alone)
    assert recognise(model(), kind=kind).recognised == known
    for which, ways in lists.items():
        others = tuple(way for way in ways if type(way).__name__ != name)
        monkeypatch.setattr(calling, which, others)
    with pytest.raises(RecognitionError):
        recognise(model(), kind=kind)


@pytest.mark.parametrize("way", WAYS)
def test_a_way_of_calling_is_recognised_and_left_in_peace(way):
    model, kind, shown = WAYS[way]
    torch.manual_seed(0)
    report = examine(model(), kind=kind, only=CHECKS)
    assert shown in report.recognised["call"]
    assert report.healthy, str(report)


@pytest.mark.parametrize("way", [name for name, (_, kind, _) in WAYS.items() if kind == "decoder"])
def test_a_leak_is_found_in_each_way_of_calling_a_decoder(way):
    torch.manual_seed(0)
    report = examine(leaking(WAYS[way][0])(), kind="decoder", only=CHECKS)
    assert "causal.leak" in [finding.case for finding in report.headlines], str(report)


def test_a_length_that_the_model_insists_on_is_a_note():
    torch.manual_seed(0)
    report = examine(SizeUnsaid(), kind="decoder", only=["lengths"])
    assert report.recognised["length"] == "20"
    assert [(f.case, f.severity) for f in report.findings] == [("lengths.exact", "note")]


def test_a_cache_inside_a_model_is_fed_by_places():
    torch.manual_seed(0)
    report = examine(PlacesAndCache(), kind="decoder", only=["cache"])
    assert report.recognised["rows"] == "= 3"
    assert [outcome.status for outcome in report.outcomes] == ["passed"]


def test_padding_is_examined_where_its_mask_is_handed_on():
    torch.manual_seed(0)
    for model in (SeesPadding(), HandsOn(Forgetful)):
        report = examine(model, kind="encoder", only=["padding"])
        assert "padding.right" in [finding.case for finding in report.findings], report.recognised
    report = examine(Swallows(), kind="encoder", only=["padding"])
    assert "real" not in report.recognised and report.findings == ()


class NeedsItsEnd(healthy.GeneratingDecoder):
    """Settings without a default; a batch cannot be compared with one token."""

    def generate(self, tokens, eos, max_new_tokens, temperature, top_k=None):
        was_training = self.training
        self.eval()
        for _ in range(max_new_tokens):
            logits = self(self.crop(tokens))[:, -1]
            token = torch.multinomial(self.distribution(logits, temperature, top_k), 1)
            tokens = torch.cat((tokens, token), dim=1)
            if token == eos:
                break
        self.train(was_training)
        return tokens


def test_settings_without_a_default_are_given():
    torch.manual_seed(0)
    report = examine(NeedsItsEnd(), kind="decoder", only=["greedy", "stops", "batch_generation"])
    assert "eos" in report.recognised["generation"]
    statuses = [outcome.status for outcome in report.outcomes]
    assert statuses == ["passed", "passed", "found"]
    assert [(f.case, f.severity) for f in report.findings] == [
        ("batch_generation.one_prompt", "note")
    ]


class Strange(healthy.Decoder):
    def forward(self, words, style):
        return F.relu(super().forward(words)) if style == 1 else style["none"]


def test_an_adapter_that_is_suggested_was_tried_and_says_how_it_ended():
    with pytest.raises(ClearheadError) as error:
        examine(Strange(), kind="decoder")
    text = str(error.value)
    assert re.search(r"this call ends with:\n    TypeError: 'ellipsis' object", text)
    assert "inside the adapter" in text


class NoParts(nn.Module):
    """No forward, and nothing that encodes or decodes."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(VOCAB, WIDTH)


def test_a_model_without_forward_is_answered_in_words():
    with pytest.raises(ClearheadError, match="AttributeError"):
        examine(NoParts(), kind="encoder-decoder")
