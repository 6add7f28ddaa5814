"""The advice fits the cause: the same finding, with other lines for another mistake."""

import pytest
import torch
from torch import nn

from clearhead.doctor import examine
from clearhead.doctor.texts import explain
from tests.doctor.specimens import healthy
from tests.doctor.specimens.healthy import LIMIT, VOCAB, WIDTH, causal


def found(model, kind, check, **how):
    """Case, origin, place and advice of the first finding of a check."""
    torch.manual_seed(0)
    report = examine(model, kind=kind, only=[check], **how)
    assert report.not_run == []
    return report.findings[0], explain(report.findings[0], "en")


class LateMask(healthy.Attention):
    def mask(self, scores, allowed):
        return scores

    def normalise(self, scores, allowed):
        return scores.softmax(dim=-1) * allowed


class Inverted(healthy.Attention):
    def mask(self, scores, allowed):
        return super().mask(scores, ~allowed)


class NoMask(healthy.Attention):
    def mask(self, scores, allowed):
        return scores


@pytest.mark.parametrize(
    ("attention", "origin", "right"),
    [
        (LateMask, "after_softmax", "scores.masked_fill(future"),
        (Inverted, "inverted", "~allowed"),
        (NoMask, "open", "masked_fill(future"),
    ],
)
def test_a_leak_says_what_is_wrong_with_the_mask(attention, origin, right):
    finding, words = found(healthy.Decoder(attention=attention), "decoder", "causal")
    assert (finding.case, finding.origin) == ("causal.leak", origin)
    assert right in words.right


class EncoderOnly(healthy.Seq2Seq):
    def masks(self, source, target, source_mask, target_mask):
        keys, past, _ = super().masks(source, target, source_mask, target_mask)
        return keys, past, None


class CrossOnly(healthy.Seq2Seq):
    def masks(self, source, target, source_mask, target_mask):
        _, past, seen = super().masks(source, target, source_mask, target_mask)
        return None, past, seen


def test_padding_says_which_attention_looks_at_it():
    finding, words = found(EncoderOnly(), "encoder-decoder", "padding", pad_id=0)
    assert (finding.case, finding.origin) == ("padding.right", "cross")
    assert finding.place == "decoder.0.cross" and "memory_key_padding_mask" in words.right
    finding, words = found(CrossOnly(), "encoder-decoder", "padding", pad_id=0)
    assert (finding.case, finding.origin) == ("padding.right", "attention")
    assert finding.place == "encoder.0.attention"


class Pooled(healthy.Encoder):
    def forward(self, tokens, padding_mask=None):
        x = self.embedding(tokens)
        for index, block in enumerate(self.blocks):
            x, _ = block(x, self.allowed(padding_mask, tokens.shape[1], index))
        return self.head(self.norm(x).mean(dim=1))


def test_a_pooled_vector_that_counts_padding_is_named():
    finding, words = found(Pooled(), "encoder", "padding", pad_id=0)
    assert (finding.case, finding.origin) == ("padding.right", "pooled")
    assert "real.sum(dim=1)" in words.right


class CountsPads(healthy.PaddedDecoder):
    def forward(self, tokens, mask=None):
        x = self.embedding(tokens)
        for block in self.blocks:
            x, _ = block(x, self.allowed_and_real(mask, tokens.shape[1]))
        return self.scores(x)


def test_positions_that_count_padding_are_named():
    finding, words = found(CountsPads(), "decoder", "padding", pad_id=0)
    assert (finding.case, finding.origin) == ("padding.left", "positions")
    assert "cumsum" in words.right


class Continues(healthy.PaddedDecoder):
    def generate(self, tokens, max_new_tokens, mask=None):
        was_training = self.training
        self.eval()
        for _ in range(max_new_tokens):
            token = self(tokens, mask)[:, -1].argmax(dim=-1, keepdim=True)
            tokens = torch.cat((tokens, token), dim=1)
            if mask is not None:
                mask = torch.cat((mask, torch.ones_like(mask[:, :1])), dim=1)
        self.train(was_training)
        return tokens


class ContinuesBehindPads(Continues):
    forward = CountsPads.forward


def test_prompts_that_are_padded_on_the_left_get_advice_for_the_left():
    finding, words = found(ContinuesBehindPads(), "decoder", "batch_generation", pad_id=0)
    assert (finding.case, finding.origin) == ("batch_generation.padded", "left")
    assert "cumsum" in words.right
    torch.manual_seed(0)
    assert examine(Continues(), kind="decoder", only=["batch_generation"], pad_id=0).healthy


class Unused(healthy.Decoder):
    def scores(self, x):
        return self.head(x)


class Cut(healthy.Decoder):
    def scores(self, x):
        return self.head(self.norm(x.detach()))


def test_a_part_that_is_never_called_is_told_from_a_gradient_that_is_cut():
    finding, words = found(Unused(), "decoder", "gradients")
    assert (finding.origin, finding.place) == (None, "norm")
    assert "self.norm(x)" in words.right
    finding, words = found(Cut(), "decoder", "gradients")
    cut = [f for f in (finding,) if f.case in ("gradients.none", "gradients.detached")]
    assert cut and "detach" in explain(finding, "en").wrong


class TiedByData(healthy.Decoder):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.head.weight.data = self.embedding.tokens.weight.data


def test_weights_in_one_memory_are_not_called_a_copy():
    finding, words = found(TiedByData(), "decoder", "tied")
    assert (finding.case, finding.origin) == ("tied.copied", "memory")
    assert "share their memory" in words.seen and "until the first step" not in words.why


class ComplexTurns(healthy.Attention):
    """A rotation by complex numbers, which model.to(float64) makes real."""

    def __init__(self, width=WIDTH, **settings):
        super().__init__(width, **settings)
        angles = torch.outer(torch.arange(LIMIT).float(), torch.tensor([1.0, 0.3, 0.1, 0.03]))
        turns = torch.polar(torch.ones_like(angles), angles)
        self.register_buffer("turns", turns, persistent=False)

    def scores(self, q, k):
        return super().scores(self.turn(q), self.turn(k))

    def turn(self, x):
        pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(pairs * self.turns[: x.shape[-2]]).flatten(-2).type_as(x)


class LargeMask(healthy.Attention):
    """Zero times a number that is infinite in half precision is NaN."""

    def mask(self, scores, allowed):
        return scores + (1 - allowed.to(scores)) * (torch.full_like(scores, -3e4) * 3e4)


def test_another_precision_says_what_does_not_fit():
    model = healthy.Decoder(attention=ComplexTurns, embedding=healthy.TokensOnly)
    finding, words = found(model, "decoder", "dtypes")
    assert (finding.case, finding.origin) == ("dtypes.differs", "complex")
    assert finding.place == "blocks.0.attention.turns" and "1e9" not in words.cause

    class Overflows(healthy.Decoder):
        def scores(self, x):
            return self.head(self.norm(x)) * 1e6

    finding, words = found(Overflows(), "decoder", "dtypes")
    assert (finding.case, finding.origin) == ("dtypes.overflow", None)
    assert "1e9" not in words.wrong
    finding, words = found(healthy.Decoder(attention=LargeMask), "decoder", "dtypes")
    assert (finding.case, finding.origin) == ("dtypes.overflow", "mask")
    assert "finfo" in words.right


class Gated(nn.Module):
    """A feed-forward layer with a gate; queries that share their keys make `key` narrow as well."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.query, self.key, self.value, self.out = (
            nn.Linear(WIDTH, n) for n in (WIDTH, WIDTH // 3, WIDTH // 3, WIDTH)
        )
        self.w1, self.w3 = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, 2 * WIDTH)
        self.w2 = nn.Linear(2 * WIDTH, WIDTH)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                std = 0.02 / 2 if name == "w3.weight" else 0.02  # two layers: by √(2 · 2)
                parameter.data *= std / parameter.data.std()

    def forward(self, x, allowed):
        h = self.norm(x)
        q, k, v = self.query(h), self.key(h).repeat(1, 1, 3), self.value(h).repeat(1, 1, 3)
        scores = (q @ k.transpose(1, 2) / WIDTH**0.5).masked_fill(~allowed, -1e9)
        x = x + self.out(scores.softmax(dim=-1) @ v)
        return x + self.w2(nn.functional.silu(self.w1(x)) * self.w3(x))


class GatedDecoder(healthy.Decoder):
    def make_blocks(self, make):
        return nn.ModuleList(Gated() for _ in range(2))

    def forward(self, tokens):
        x, n = self.embedding(tokens), tokens.shape[1]
        for block in self.blocks:
            x = block(x, causal(n, n))
        return self.scores(x)


def test_a_key_matrix_is_not_said_to_write_to_the_stream():
    finding, _ = found(GatedDecoder(), "decoder", "initialisation")
    assert finding.numbers["reads"] == "w3" and finding.numbers["writes"] == "w2"
