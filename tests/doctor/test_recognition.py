"""Signatures as people write them are recognised, each by a look-alike of our own; so is what a
copy must not share."""

import copy

import pytest
import torch
from torch import nn

from clearhead.doctor import examine
from clearhead.doctor.causes import fold
from clearhead.doctor.copying import copy_model
from clearhead.doctor.findings import Finding
from clearhead.doctor.recognition import recognise

SOURCE, TARGET, WIDTH = 29, 41, 16


class Pair(nn.Module):
    """An encoder-decoder of torch's layers, whose target vocabulary is the larger one."""

    def __init__(self):
        super().__init__()
        self.source, self.target = nn.Embedding(SOURCE, WIDTH), nn.Embedding(TARGET, WIDTH)
        self.places = nn.Embedding(40, WIDTH)
        self.transformer = nn.Transformer(WIDTH, 2, 1, 1, 24, batch_first=True)
        self.head = nn.Linear(WIDTH, TARGET)

    def embed(self, table, tokens):
        return table(tokens) + self.places(torch.arange(tokens.shape[1]))

    def states(self, src, tgt, hidden=None, src_hidden=None):
        length = tgt.shape[1]
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        return self.transformer(
            self.embed(self.source, src),
            self.embed(self.target, tgt),
            tgt_mask=future if hidden is None else hidden,
            src_key_padding_mask=src_hidden,
            memory_key_padding_mask=src_hidden,
        )

    def forward(self, src, tgt):
        return self.head(self.states(src, tgt))


class Flat(Pair):
    def forward(self, src, tgt):
        return super().forward(src, tgt).flatten(0, 1), None


class Masked(Pair):
    """Masks are the caller's: True may look, (batch, 1, source) and (batch, target, target)."""

    def forward(self, src, trg, src_mask, trg_mask):
        return self.head(self.states(src, trg, ~trg_mask[0], ~src_mask[:, 0]))


class TorchMasked(Pair):
    """Masks as torch has them: True hides."""

    def forward(self, src, tgt, tgt_mask, src_padding_mask):
        return self.head(self.states(src, tgt, tgt_mask, src_padding_mask))


class Lengths(Pair):
    def forward(self, sources, targets, source_lengths):
        places = torch.arange(sources.shape[1])
        return self.head(self.states(sources, targets, None, places >= source_lengths[:, None]))


class States(Pair):
    """forward returns states, and a generator makes logits of them."""

    def __init__(self):
        super().__init__()
        self.generator = self.head
        del self.head

    def forward(self, src, tgt):
        return self.states(src, tgt)


class NoForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.pair = Pair()

    def encode(self, src, src_mask):
        memory = self.pair.transformer.encoder(self.pair.embed(self.pair.source, src))
        return memory * 1.0

    def decode(self, memory, src_mask, tgt, tgt_mask):
        hidden = ~tgt_mask[0]
        x = self.pair.embed(self.pair.target, tgt)
        return self.pair.transformer.decoder(x, memory, tgt_mask=hidden)

    def project(self, x):
        return self.pair.head(x)


class ShiftsItself(Pair):
    def forward(self, inputs, targets):
        begun = torch.cat((torch.full_like(targets[:, :1], 3), targets[:, :-1]), dim=1)
        return super().forward(inputs, begun)


class LengthFirst(Pair):
    def forward(self, src, tgt):
        return super().forward(src.t(), tgt.t()).transpose(0, 1)


class LengthFirstMasked(Pair):
    """As in torch's tutorial on translation: (length, batch), and every mask is needed."""

    def forward(
        self, src, trg, src_mask, tgt_mask, src_padding_mask, tgt_padding_mask, memory_padding_mask
    ):
        x = self.transformer(
            self.embed(self.source, src.t()),
            self.embed(self.target, trg.t()),
            src_mask,
            self.future(tgt_mask),
            None,
            src_padding_mask,
            tgt_padding_mask,
            memory_padding_mask,
        )
        return self.head(x).transpose(0, 1)

    def future(self, tgt_mask):
        return tgt_mask


class LooksAhead(LengthFirstMasked):
    def future(self, tgt_mask):
        return None


FORMS = {
    Pair: "logits = model(src, tgt)",
    Flat: "logits = model(src, tgt)",
    Masked: "src_mask, trg_mask",
    TorchMasked: "tgt_mask, src_padding_mask",
    Lengths: "source_lengths",
    States: "model.generator",
    NoForward: "model.project",
    ShiftsItself: "shifts the target itself",
    LengthFirst: "(length, batch)",
    LengthFirstMasked: "memory_padding_mask); (length, batch)",
}


@pytest.mark.parametrize("build", FORMS, ids=lambda build: build.__name__)
def test_an_encoder_decoder_is_recognised_and_does_not_leak(build):
    torch.manual_seed(0)
    only = ["causal", "context", "target_leak", "source", "mixing", "batch"]
    report = examine(build(), kind="encoder-decoder", only=only)
    assert FORMS[build] in report.recognised["call"]
    assert report.recognised["vocabulary"] == str(TARGET)
    assert report.healthy, report
    assert not report.not_run


def test_masks_of_a_length_first_model_hide_padding_and_a_missing_one_is_found():
    torch.manual_seed(0)
    only = ["causal", "padding", "pad_value", "mask_strength", "batch"]
    report = examine(LengthFirstMasked(), kind="encoder-decoder", only=only)
    # Its learned positions count pads on the left, which is only a note.
    assert {(f.case, f.severity) for f in report.findings} == {("padding.left", "note")}
    report = examine(LooksAhead(), kind="encoder-decoder", only=only)
    assert "(length, batch)" in report.recognised["call"]
    assert [f.case for f in report.findings if f.severity == "error"] == ["causal.leak"]


class OldLanguageModel(nn.Module):
    """As in torch's first tutorial on Transformers: (length, batch), and the caller's mask."""

    def __init__(self, masked: bool = True):
        super().__init__()
        self.tokens, self.places = nn.Embedding(30, WIDTH), nn.Embedding(40, WIDTH)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, 2, 24), 2)
        self.head, self.masked = nn.Linear(WIDTH, 30), masked

    def forward(self, src, src_mask):
        x = self.tokens(src) + self.places(torch.arange(len(src)))[:, None]
        return self.head(self.layers(x, src_mask if self.masked else None))


@pytest.mark.parametrize(("masked", "cases"), [(True, []), (False, ["causal.leak"])])
def test_a_length_first_decoder_with_a_mask_is_recognised_even_if_it_ignores_it(masked, cases):
    torch.manual_seed(0)
    report = examine(OldLanguageModel(masked), kind="decoder", only=["causal", "context", "batch"])
    assert "(length, batch)" in report.recognised["call"]
    assert [finding.case for finding in report.findings] == cases


class BareTables(nn.Module):
    """Every weight is a parameter of its own; the inner matrix has more rows than the table."""

    def __init__(self):
        super().__init__()
        sizes = {"table": 30, "places": 40, "up": 64}
        self.weights = nn.ParameterDict(
            {name: torch.randn(n, WIDTH) * 0.1 for name, n in sizes.items()}
        )

    def forward(self, ids):
        w = self.weights
        x = w["table"][ids] + w["places"][: ids.shape[1]]
        x = x + x.cumsum(dim=1) / torch.arange(1, ids.shape[1] + 1)[:, None]
        x = x + torch.relu(x @ w["up"].t()) @ w["up"]
        return x @ w["table"].t()


def test_a_table_of_tokens_that_is_a_bare_parameter_says_how_large_the_vocabulary_is():
    torch.manual_seed(0)
    report = examine(BareTables(), kind="decoder", only=["causal", "context", "batch"])
    assert report.recognised["vocabulary"] == "30" and report.healthy, report


class Leaks(Pair):
    """targets are for the loss; one sequence feeds both sides."""

    def forward(self, idx, targets=None):
        tokens = idx % SOURCE
        logits = self.head(self.states(tokens, tokens))
        return logits, None


def test_targets_are_never_what_a_decoder_reads():
    report = examine(Leaks(), kind="encoder-decoder", vocab_size=TARGET, only=["causal"])
    assert [finding.case for finding in report.findings] == ["causal.one_sequence"]


class Integers(nn.Module):
    """A padding mask of integers, on which arithmetic is done."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(30, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 24, batch_first=True)
        self.layers, self.head = nn.TransformerEncoder(layer, 1), nn.Linear(WIDTH, 30)

    def forward(self, tokens, attention_mask=None):
        hidden = None if attention_mask is None else (1 - attention_mask) == 1
        return self.head(self.layers(self.tokens(tokens), src_key_padding_mask=hidden))


def test_the_type_of_a_mask_is_tried_with_a_mask_that_hides():
    patient = recognise(Integers(), kind="encoder")
    assert "attention_mask" in patient.recognised["real"]
    padded = patient.draw(2)
    real = torch.ones_like(padded.tokens, dtype=torch.bool)
    real[:, -2:] = False
    patient.logits(patient.plain, type(padded)(padded.tokens, None, real))


class Closure(nn.Module):
    """Its feed-forward layer is called through a function that holds the layer."""

    def __init__(self):
        super().__init__()
        self.tokens, self.layer = nn.Embedding(30, WIDTH), nn.Linear(WIDTH, 30)
        layer = self.layer
        self.run = lambda x: layer(x)

    def forward(self, tokens):
        logits = self.run(self.tokens(tokens))
        self.kept = logits  # with its graph, which deepcopy refuses
        return logits


def test_a_copy_runs_its_own_layers_and_leaves_stored_graphs_behind():
    model, tokens = Closure(), torch.arange(6)[None]
    before = model(tokens)
    with pytest.raises(RuntimeError):
        copy.deepcopy(model)
    twin = copy_model(model)
    with torch.no_grad():
        twin.layer.weight.zero_()
        twin.layer.bias.zero_()
    assert not twin(tokens).any()
    assert torch.equal(model(tokens), before)


def test_a_copy_that_runs_the_original_is_a_note():
    model = Closure()
    report = examine(model, kind="decoder", only=["deepcopy"])
    assert [(f.case, f.severity) for f in report.findings] == [("deepcopy.calls_original", "note")]
    assert report.healthy


def test_what_follows_from_a_cause_stands_under_it():
    findings = [
        Finding("causal.leak", "error"),
        Finding("cache.one", "error"),
        Finding("dtypes.differs", "warning"),
        Finding("determinism.eval", "warning"),
        Finding("limit.beyond", "note"),
    ]
    folded = fold(findings)
    assert [(f.case, f.because) for f in folded] == [
        ("determinism.eval", None),
        ("causal.leak", "determinism.eval"),
        ("cache.one", "determinism.eval"),
        ("dtypes.differs", "determinism.eval"),
        ("limit.beyond", None),
    ]
    assert folded[0].severity == "error"  # as bad as the worst that follows


def test_a_loss_of_the_model_does_not_explain_the_first_loss_of_its_logits():
    findings = [Finding("loss_value.shift_0", "warning"), Finding("first_loss.high", "warning")]
    assert [f.because for f in fold(findings)] == [None, None]
