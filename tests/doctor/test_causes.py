"""One symptom, several causes: a finding says which, with words and lines of its own."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearhead.doctor import examine
from clearhead.doctor.texts import explain
from tests.doctor.specimens import healthy
from tests.doctor.specimens.healthy import HEADS, LIMIT, VOCAB, WIDTH, causal
from tests.doctor.specimens.inside import RotaryAttention


def headline(model, kind="decoder", *only, **how):
    """The first headline's case and origin; None where nothing worse than a note was found."""
    torch.manual_seed(0)
    report = examine(model(), kind=kind, only=only or None, quick=True, **how)
    assert report.not_run == []
    first = next((f for f in report.headlines if f.severity != "note"), None)
    return None if first is None else (first.case, first.origin)


class AlongTheBatch(healthy.Embedding):
    """A table of positions for (length, batch, width)."""

    def forward(self, tokens, start=0, mask=None):
        x = self.tokens(tokens)
        return self.dropout(x + self.positions(torch.arange(len(x)))[:, None])


class OverTheBatch(nn.Module):
    """torch's layers, without batch_first."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = healthy.Embedding(), nn.Linear(WIDTH, VOCAB)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, tokens):
        hidden = ~causal(len(tokens), len(tokens))
        return self.head(self.layers(self.embedding(tokens), hidden))


class BatchNormBlock(healthy.Block):
    def make_norm(self, width):
        class Norm(nn.BatchNorm1d):
            def forward(self, x):
                return super().forward(x.transpose(1, 2)).transpose(1, 2)

        return Norm(width)


class Experts(nn.Module):
    """Each expert takes so many tokens of the whole batch, and drops those behind them."""

    share = 0.5

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(WIDTH, 2)
        self.experts = nn.ModuleList(healthy.FeedForward() for _ in range(2))

    def forward(self, x):
        flat, y = x.flatten(0, 1), torch.zeros_like(x).flatten(0, 1)
        weight, chosen = self.router(flat).softmax(dim=-1).max(dim=-1)
        for index, expert in enumerate(self.experts):
            rows = (chosen == index).nonzero().flatten()[: max(int(self.share * len(flat)), 1)]
            y[rows] = expert(flat[rows]) * weight[rows, None]
        return y.view_as(x)


class NoneDropped(Experts):
    share = 1.0


class ExpertBlock(healthy.Block):
    experts: type[nn.Module] = Experts

    def __init__(self, **settings):
        super().__init__(**settings)
        self.ff = self.experts()


class DroplessBlock(ExpertBlock):
    experts = NoneDropped


class MeanOfTheBatch(healthy.Decoder):
    def scores(self, x):
        return super().scores(x - x.mean(dim=0, keepdim=True))


@pytest.mark.parametrize(
    ("model", "origin"),
    [
        (lambda: healthy.Decoder(embedding=AlongTheBatch), "positions"),
        (OverTheBatch, "axis"),
        (lambda: healthy.Decoder(block=ExpertBlock), "experts"),
        (MeanOfTheBatch, None),
    ],
)
def test_what_mixes_the_rows_of_a_batch_is_named(model, origin):
    assert headline(model) == ("batch.eval", origin)


def test_batch_norm_is_named_where_it_is():
    model = lambda: healthy.Decoder(block=BatchNormBlock)  # noqa: E731
    assert headline(model, "decoder", "batch") == ("batch.train", "batch_norm")


def test_experts_that_drop_nothing_are_left_in_peace():
    assert headline(lambda: healthy.Decoder(block=DroplessBlock), "decoder", "batch") is None


def test_each_cause_has_words_and_lines_of_its_own():
    torch.manual_seed(0)
    models = (healthy.Decoder(embedding=AlongTheBatch), OverTheBatch(), MeanOfTheBatch())
    reports = [examine(model, kind="decoder", only=["batch"]) for model in models]
    words = [explain(report.findings[0], "en") for report in reports]
    assert len({w.title for w in words}) == len({w.right for w in words}) == 3
    assert not any("BatchNorm" in w.right for w in words)
    assert reports[0].findings[0].place == "embedding.positions"


class KeepsItsKeys(healthy.Attention):
    """Keys of longer calls stay behind those of shorter ones."""

    def __init__(self, width=WIDTH, **settings):
        super().__init__(width, **settings)
        self.kept: torch.Tensor | None = None

    def forward(self, x, memory, allowed=None, past=None):
        if not self.training:
            if self.kept is not None and self.kept.shape[1] > memory.shape[1]:
                n_rows, n = min(len(memory), len(self.kept)), memory.shape[1]
                rest = self.kept[:n_rows, n:].expand(len(memory), -1, -1)
                allowed = F.pad(allowed, (0, rest.shape[1]), value=True)
                memory = torch.cat((memory, rest.to(memory)), dim=1)
            self.kept = memory[:1].detach()
        return super().forward(x, memory, allowed, past)


def test_what_a_longer_call_leaves_behind_is_the_cause_of_the_rest():
    model = lambda: healthy.Decoder(attention=KeepsItsKeys)  # noqa: E731
    assert headline(model) == ("determinism.state", None)


class Head(nn.Module):
    """One head, a module of its own."""

    def __init__(self, scale):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH // HEADS) for _ in range(3))
        self.scale = scale

    def forward(self, x, allowed):
        scores = self.query(x) @ self.key(x).transpose(1, 2) / math.sqrt(self.scale)
        return scores.masked_fill(~allowed, -1e9).softmax(dim=-1) @ self.value(x)


class HeadByHead(nn.Module):
    scale = WIDTH // HEADS

    def __init__(self, width=WIDTH, **_):
        super().__init__()
        self.heads = nn.ModuleList(Head(self.scale) for _ in range(HEADS))
        self.output = nn.Linear(width, width)

    def forward(self, x, memory, allowed=None, past=None):
        return self.output(torch.cat([head(x, allowed) for head in self.heads], dim=-1)), None


class ScaledByTheModel(HeadByHead):
    scale = WIDTH


def test_the_scale_of_heads_that_are_modules_of_their_own_is_read():
    def build(attention):
        return lambda: healthy.Decoder(attention=attention)

    assert headline(build(ScaledByTheModel)) == ("attention_scale.d_model", None)
    assert headline(build(HeadByHead)) is None


class TurnsValues(RotaryAttention):
    def split(self, x):
        return super().split(x)

    def forward(self, x, memory, allowed=None, past=None):
        q, k, v = (
            self.rotate(self.split(layer(x))) for layer in (self.query, self.key, self.value)
        )
        weights = self.mask(healthy.Attention.scores(self, q, k), allowed).softmax(dim=-1)
        return self.output(self.merge(self.drop(weights) @ v)), (k, v)


class NestedLists(nn.Module):
    """Layers as pairs in a list of lists, and a norm inside each part."""

    def __init__(self, attention):
        super().__init__()
        self.tokens, self.head = nn.Embedding(VOCAB, WIDTH), nn.Linear(WIDTH, VOCAB)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(5))
        self.layers = nn.ModuleList(
            nn.ModuleList([attention(WIDTH, p=0.0), healthy.FeedForward()]) for _ in range(2)
        )

    def forward(self, tokens):
        x, n = self.tokens(tokens), tokens.shape[1]
        for index, (attention, feed) in enumerate(self.layers):
            h = self.norms[2 * index](x)
            x = x + attention(h, h, causal(n, n))[0]
            x = x + feed(self.norms[2 * index + 1](x))
        return self.head(self.norms[4](x))


def test_a_rotation_of_the_values_is_found_where_layers_are_lists():
    case = headline(lambda: NestedLists(TurnsValues), "decoder", "relative")
    assert case == ("relative.values", None)
    assert headline(lambda: NestedLists(RotaryAttention), "decoder", "relative") is None


class OverTheLength(nn.LayerNorm):
    def forward(self, x):
        mean, spread = x.mean(dim=1, keepdim=True), x.std(dim=1, keepdim=True)
        return self.weight * (x - mean) / (spread + 1e-5) + self.bias


class LengthBlock(healthy.Block):
    def make_norm(self, width):
        return OverTheLength(width)


class NeedsMasks(healthy.Seq2Seq):
    """Its caller makes all masks: True may look."""

    def forward(self, src, tgt, src_mask, tgt_mask):
        memory = self.encode(src, src_mask[:, None])
        return self.decode(tgt, memory, tgt_mask[:, None], src_mask[:, None])


def test_a_defect_elsewhere_does_not_turn_the_meaning_of_a_mask():
    torch.manual_seed(0)
    report = examine(NeedsMasks(block=LengthBlock), kind="encoder-decoder", quick=True)
    assert "true: real" in report.recognised["source_real"]
    assert "true: may look" in report.recognised["real"]
    first = report.headlines[0]
    assert (first.case, first.origin) == ("mixing.outside_attention", "norm")
    assert not {"source.unused", "residual.skips"} & {f.case for f in report.findings}


class Smeared(healthy.Decoder):
    """The token before is mixed into each token, in front of the first layer."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Parameter(torch.tensor(0.3))

    def forward(self, tokens):
        x, n = self.embedding(tokens), tokens.shape[1]
        x = x + self.gate * F.pad(x[:, :-1], (0, 0, 1, 0))
        for block in self.blocks:
            x, _ = block(x, self.allowed(n, n))
        return self.scores(x)


class Rolled(Smeared):
    """The last token reaches the first position."""

    def forward(self, tokens):
        x, n = self.embedding(tokens), tokens.shape[1]
        x = x + self.gate * x.roll(-2, dims=1)
        for block in self.blocks:
            x, _ = block(x, self.allowed(n, n))
        return self.scores(x)


def test_a_token_shift_is_a_note_and_its_place_is_where_it_is_written():
    torch.manual_seed(0)
    (finding,) = examine(Smeared(), kind="decoder", only=["mixing"]).findings
    assert (finding.case, finding.severity, finding.place) == ("mixing.neighbours", "note", "")
    (finding,) = examine(Rolled(), kind="decoder", only=["mixing"]).findings
    assert (finding.case, finding.severity, finding.place) == (
        "mixing.outside_attention",
        "warning",
        "",
    )


class Settings:
    def __init__(self, **settings):
        vars(self).update(settings)


class Windowed(healthy.Decoder):
    """Sees `size + more` keys, its own among them."""

    def __init__(self, size=6, more=0, name="sliding_window", **settings):
        super().__init__()
        self.size, self.config = size + more, Settings(**{name: size, **settings})

    def allowed(self, n_queries, n_keys):
        return super().allowed(n_queries, n_keys).triu(n_keys - n_queries - self.size + 1)


@pytest.mark.parametrize(
    ("how", "case"),
    [
        ({}, None),
        ({"more": 1}, ("window.wider", "warning")),
        ({"more": -1}, ("window.narrower", "warning")),
        ({"more": 1, "name": "window"}, ("window.wider", "note")),
        ({"more": LIMIT}, ("window.unused", "warning")),
        ({"more": LIMIT, "use_sliding_window": False}, None),
        ({"size": LIMIT, "more": 1}, None),  # longer than any sequence
    ],
)
def test_a_sliding_window_is_compared_with_the_number_in_the_configuration(how, case):
    findings = examine(Windowed(**how), kind="decoder", only=["window"]).findings
    assert [(f.case, f.severity) for f in findings] == ([] if case is None else [case])


class Unsaid(Windowed):
    """How many tokens it takes stands in its table of positions alone."""

    max_length = None


def test_a_window_that_no_sequence_fills_is_not_examined():
    torch.manual_seed(0)
    (outcome,) = examine(Unsaid(size=LIMIT), kind="decoder", only=["window"]).outcomes
    assert (outcome.status, outcome.reason) == ("not applicable", "long_window")
