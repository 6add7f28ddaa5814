"""Masks that the caller passes, in models as others write them: the doctor passes them in the
model's own convention, says that they are needed, and still finds what is wrong beside them."""

import math

import pytest
import torch
from torch import nn

from clearhead.doctor import examine

VOCAB, WIDTH, HEADS, LIMIT = 60, 32, 4, 64


class Attention(nn.Module):
    """How a mask is read is a function of scores and mask."""

    def __init__(self, read):
        super().__init__()
        self.read = read
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x, memory, mask=None, past=None):
        batch, length, _ = x.shape
        q, k, v = (
            layer(t).view(batch, -1, HEADS, WIDTH // HEADS).transpose(1, 2)
            for layer, t in ((self.q, x), (self.k, memory), (self.v, memory))
        )
        if past is not None:
            k, v = torch.cat((past[0], k), dim=2), torch.cat((past[1], v), dim=2)
        scores = q @ k.transpose(-2, -1) / math.sqrt(WIDTH // HEADS)
        scores = scores if mask is None else self.read(scores, mask)
        mixed = (scores.softmax(dim=-1) @ v).transpose(1, 2).reshape(batch, length, WIDTH)
        return self.out(mixed), (k, v)


class Layer(nn.Module):
    def __init__(self, read, cross=False):
        super().__init__()
        self.attention, self.cross = Attention(read), Attention(read) if cross else None
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.norm_3 = nn.LayerNorm(WIDTH) if cross else None
        self.ff = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, WIDTH))

    def forward(self, x, mask=None, memory=None, memory_mask=None, past=None):
        h = self.norm_1(x)
        change, past = self.attention(h, h, mask, past)
        x = x + change
        if self.cross is not None and self.norm_3 is not None:
            x = x + self.cross(self.norm_3(x), memory, memory_mask)[0]
        return x + self.ff(self.norm_2(x)), past


class Decoder(nn.Module):
    def __init__(self, read, masked=(True, True)):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCAB, WIDTH), nn.Embedding(LIMIT, WIDTH)
        self.layers = nn.ModuleList(Layer(read) for _ in range(2))
        self.norm, self.head, self.masked = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB), masked

    def forward(self, x, mask=None):
        h = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        for layer, masked in zip(self.layers, self.masked):
            h, _ = layer(h, mask if masked else None)
        return self.head(self.norm(h))


class OfPadding(Decoder):
    """A bug: the mask is of padding, and nobody hides the future."""

    def forward(self, input_ids, attention_mask=None):
        mask = None if attention_mask is None else attention_mask[:, None, None, :]
        return super().forward(input_ids, mask)


class Cached(Decoder):
    """With a cache, the mask has a row for each new token."""

    late = 0

    def forward(self, x, mask=None, past_key_values=None):
        start = 0 if past_key_values is None else past_key_values[0][0].shape[2]
        start = max(start - self.late, 0)
        h = self.tokens(x) + self.places(torch.arange(start, start + x.shape[1]))
        past = past_key_values or [None] * len(self.layers)
        for index, layer in enumerate(self.layers):
            h, new = layer(h, mask, past=past[index])
            past = [*past[:index], new, *past[index + 1 :]]
        return self.head(self.norm(h)), past


class CachedLate(Cached):
    """A bug: the position of a new token is that of the one before."""

    late = 1


class Pair(nn.Module):
    def __init__(self, read, masked=(True, True)):
        super().__init__()
        self.source, self.target = nn.Embedding(VOCAB, WIDTH), nn.Embedding(VOCAB, WIDTH)
        self.places, self.masked = nn.Embedding(LIMIT, WIDTH), masked
        self.encoder = nn.ModuleList(Layer(read) for _ in range(2))
        self.decoder = nn.ModuleList(Layer(read, cross=True) for _ in range(2))
        self.norm, self.last = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCAB)

    def forward(self, src, tgt, src_mask=None, tgt_mask=None):
        memory = self.source(src) + self.places(torch.arange(src.shape[1]))
        for layer in self.encoder:
            memory, _ = layer(memory, src_mask)
        memory, x = self.norm(memory), self.target(tgt) + self.places(torch.arange(tgt.shape[1]))
        for layer, masked in zip(self.decoder, self.masked):
            x, _ = layer(x, tgt_mask if masked else None, memory, src_mask)
        return self.head(self.last(x))


class TorchDecoder(nn.Module):
    """nn.TransformerEncoder with a mask, as torch's tutorial on language models has it."""

    def __init__(self, batch_first=True):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCAB, WIDTH), nn.Embedding(LIMIT, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 64, batch_first=batch_first)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head, self.axis = nn.Linear(WIDTH, VOCAB), 1 if batch_first else 0

    def forward(self, src, src_mask=None):
        places = self.places(torch.arange(src.shape[self.axis]))
        places = places if self.axis == 1 else places[:, None]
        return self.head(self.layers(self.tokens(src) + places, src_mask))


class TorchPair(nn.Module):
    """nn.Transformer, with all masks that it takes."""

    def __init__(self, passed_on=True):
        super().__init__()
        self.source, self.target = nn.Embedding(VOCAB, WIDTH), nn.Embedding(VOCAB, WIDTH)
        self.places, self.head = nn.Embedding(LIMIT, WIDTH), nn.Linear(WIDTH, VOCAB)
        self.both = nn.Transformer(WIDTH, HEADS, 2, 2, 64, batch_first=True)
        self.passed_on = passed_on

    def forward(
        self,
        src,
        tgt,
        src_mask=None,
        tgt_mask=None,
        src_padding_mask=None,
        tgt_padding_mask=None,
        memory_key_padding_mask=None,
    ):
        one = self.source(src) + self.places(torch.arange(src.shape[1]))
        two = self.target(tgt) + self.places(torch.arange(tgt.shape[1]))
        memory = memory_key_padding_mask if self.passed_on else None
        masks = (src_mask, tgt_mask, None, src_padding_mask, tgt_padding_mask, memory)
        return self.head(self.both(one, two, *masks))


def where_zero(scores, mask):
    return scores.masked_fill(mask == 0, -1e9)


def with_a_head_axis(scores, mask):
    return where_zero(scores, mask.unsqueeze(1))


def where_true(scores, mask):
    return scores.masked_fill(mask, -torch.inf)


def added(scores, mask):
    return scores + mask


def one_minus(scores, mask):
    return scores + (1.0 - mask) * -1e9


def off_by_one(scores, mask):
    return where_zero(scores, mask.roll(1, dims=-1))


def unread(scores, _mask):
    return scores


READINGS = [where_zero, with_a_head_axis, where_true, added, one_minus]


def found(model: nn.Module, kind: str, *only: str) -> dict[str, str]:
    report = examine(model, kind=kind, only=only)
    assert report.not_run == []
    return {f.case: f.severity for f in report.findings}


@pytest.fixture(autouse=True)
def same_weights():
    torch.manual_seed(0)


@pytest.mark.parametrize("read", READINGS)
def test_a_decoder_whose_caller_passes_the_causal_mask_gets_it_in_its_own_convention(read):
    report = examine(Decoder(read), kind="decoder", quick=True)
    assert {f.case for f in report.findings if f.severity != "note"} == set()
    note = next(f for f in report.findings if f.case == "causal.by_caller")
    assert note.numbers == {"argument": "mask"}
    assert "mask=…" in report.recognised["real"]


@pytest.mark.parametrize("read", READINGS)
def test_a_target_mask_of_the_caller_hides_the_future_and_padding(read):
    cases = found(Pair(read), "encoder-decoder", "causal", "padding", "pad_value", "positions")
    assert cases.pop("causal.by_caller") == "note"
    assert set(cases.values()) <= {"note"}


@pytest.mark.parametrize("batch_first", [True, False])
def test_masks_of_torchs_own_layers_are_passed(batch_first):
    assert found(TorchDecoder(batch_first), "decoder", "causal") == {"causal.by_caller": "note"}


def test_the_mask_of_the_memory_is_passed_beside_that_of_the_source():
    checks = ("causal", "padding", "pad_value")
    cases = found(TorchPair(), "encoder-decoder", *checks)
    assert cases.pop("causal.by_caller") == "note"
    assert set(cases.values()) <= {"note"}
    cases = found(TorchPair(passed_on=False), "encoder-decoder", *checks)
    assert cases["padding.right"] == "error"


def test_a_passed_mask_that_the_model_moves_by_one_is_an_error():
    assert found(Decoder(off_by_one), "decoder", "causal") == {"causal.ahead": "error"}
    cases = found(Pair(off_by_one), "encoder-decoder", "causal")
    assert cases == {"causal.ahead": "error"}


@pytest.mark.parametrize("build", [lambda: Decoder(unread), lambda: OfPadding(where_zero)])
def test_a_decoder_that_no_mask_makes_causal_leaks(build):
    assert found(build(), "decoder", "causal") == {"causal.leak": "error"}


def test_a_layer_that_does_not_get_the_passed_mask_is_named():
    for model, kind, place in (
        (Decoder(where_zero, (True, False)), "decoder", "layers.1.attention"),
        (Pair(where_zero, (True, False)), "encoder-decoder", "decoder.1.attention"),
    ):
        report = examine(model, kind=kind, only=["causal"])
        assert [(f.case, f.place) for f in report.findings] == [("causal.leak", place)]


def test_with_a_cache_a_passed_mask_has_a_row_for_each_new_token():
    assert found(Cached(where_zero), "decoder", "cache") == {}
    assert found(CachedLate(where_zero), "decoder", "cache")["cache.one"] == "error"
