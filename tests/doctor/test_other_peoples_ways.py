"""Models as other people write them: right ones get no error, and a slip is named."""

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.doctor import Calls, examine
from clearhead.doctor.recognition import RecognitionError

VOCAB, WIDTH, HEADS, LIMIT = 53, 32, 4, 64


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x, mask=None, memory=None, past=None):
        seen = x if memory is None else memory
        q, k, v = (
            layer(of).unflatten(2, (HEADS, -1)).transpose(1, 2)
            for layer, of in ((self.q, x), (self.k, seen), (self.v, seen))
        )
        if past is not None:
            k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        scores = q @ k.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5
        if mask is not None:
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2)), (k, v)


class Block(nn.Module):
    def __init__(self, *, cross: bool = False, inplace: bool = False):
        super().__init__()
        self.attention, self.norm1, self.norm2 = (
            Attention(),
            nn.LayerNorm(WIDTH),
            nn.LayerNorm(WIDTH),
        )
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.1, inplace=inplace)
        if cross:
            self.cross, self.norm3 = Attention(), nn.LayerNorm(WIDTH)

    def forward(self, x, mask=None, memory=None, past=None):
        attended, kept = self.attention(self.norm1(x), mask, past=past)
        x = x + self.dropout(attended)
        if memory is not None:
            x = x + self.cross(self.norm3(x), None, memory)[0]
        return x + self.dropout(self.down(F.gelu(self.up(self.norm2(x))))), kept


class Decoder(nn.Module):
    vocab_size, block_size = VOCAB, LIMIT

    def __init__(self, *, inplace: bool = False):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCAB, WIDTH), nn.Embedding(LIMIT, WIDTH)
        self.blocks = nn.ModuleList(Block(inplace=inplace) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB)

    def run(self, tokens, start=0, past=None, real=None):
        n, before = tokens.shape[1], past[0][0].shape[2] if past else 0
        x = self.tokens(tokens) + self.positions(torch.arange(start, start + n))
        mask = torch.ones(n, before + n, dtype=torch.bool).tril(before)
        mask = mask if real is None else mask & real[:, None, None].bool()
        kept = []
        for i, block in enumerate(self.blocks):
            x, own = block(x, mask, past=past[i] if past else None)
            kept.append(own)
        return self.head(self.norm(x)), kept

    def forward(self, t):
        return self.run(t)[0]


class SlipInTheLoss(Decoder):
    def forward(self, t, targets=None):
        logits = self.run(t)[0]
        return logits, None if targets is None else G.cross_entropy(logits, targets)  # noqa: F821


class StartAndCache(Decoder):
    def forward(self, t, start_pos=0, kv_cache=None):
        return self.run(t, start_pos, kv_cache)


class StartBesideACacheThatCounts(Decoder):
    def forward(self, t, kv_cache=None, offset=0):
        before = 0 if kv_cache is None else kv_cache[0][0].shape[2]
        return self.run(t, before + offset, kv_cache)


class StartNeeded(Decoder):
    def forward(self, t, start_pos, kv_cache=None):
        return self.run(t, start_pos, kv_cache)


class MaskNeeded(Decoder):
    def forward(self, input_ids, attention_mask, past_key_values=None):
        before = 0 if past_key_values is None else past_key_values[0][0].shape[2]
        return self.run(input_ids, before, past_key_values, attention_mask)


class LossBesideTheLogits(Decoder):
    def forward(self, t, cache=None):
        logits, kept = self.run(t, cache[0][0].shape[2] if cache else 0, cache)
        if cache is not None:
            cache[:] = kept
        return logits, self.tokens.weight.square().mean()


class ForgetsThePast(StartAndCache):
    """A bug: with a cache, positions begin at 0 again."""

    def forward(self, t, start_pos=0, kv_cache=None):
        return self.run(t, 0, kv_cache)


class Samples(Decoder):
    @torch.no_grad()
    def generate(self, tokens, max_length):
        training = self.training
        self.eval()
        while tokens.shape[1] < max_length:
            drawn = self(tokens)[:, -1].softmax(-1).multinomial(1)
            tokens = torch.cat((tokens, drawn), 1)
        self.train(training)
        return tokens


class LengthFirst(Decoder):
    def forward(self, src, targets=None):
        logits = self.run(src.t())[0].transpose(0, 1)
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1))


class Tied(Decoder):
    """The list keeps the table from being registered twice."""

    def __init__(self):
        super().__init__()
        nn.init.normal_(self.tokens.weight, std=0.02)
        self.head = Head(self.tokens)


class Head(nn.Module):
    def __init__(self, table: nn.Embedding):
        super().__init__()
        self.table, self.bias = [table], nn.Parameter(torch.zeros(VOCAB))

    def forward(self, x):
        return x @ self.table[0].weight.t() + self.bias


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.source, self.target = nn.Embedding(VOCAB, WIDTH), nn.Embedding(VOCAB, WIDTH)
        self.positions = nn.Embedding(LIMIT, WIDTH)
        self.encoder = nn.ModuleList(Block() for _ in range(2))
        self.decoder = nn.ModuleList(Block(cross=True) for _ in range(2))
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCAB)

    def translate(self, src, tgt):
        memory = self.source(src) + self.positions(torch.arange(src.shape[1]))
        for block in self.encoder:
            memory = block(memory)[0]
        memory, n = self.norm1(memory), tgt.shape[1]
        x = self.target(tgt) + self.positions(torch.arange(n))
        for block in self.decoder:
            x = block(x, torch.ones(n, n, dtype=torch.bool).tril(), memory)[0]
        return self.head(self.norm2(x))

    def forward(self, tgt, src):
        return self.translate(src, tgt)


class WritesIntoTheSource(Both):
    def forward(self, src, tgt):
        src[:, -1] = 3
        return self.translate(src, tgt)


def found(model: nn.Module, kind: str, *only: str) -> set[str]:
    report = examine(model, kind=kind, only=only)
    assert report.not_run == []
    return {each.case for each in report.findings if each.severity != "note"}


@pytest.mark.parametrize(
    ("build", "checks"),
    [
        (SlipInTheLoss, ["causal"]),
        (StartAndCache, ["causal", "cache"]),
        (StartBesideACacheThatCounts, ["causal", "cache"]),
        (StartNeeded, ["causal", "cache"]),
        (MaskNeeded, ["causal", "cache"]),
        (LossBesideTheLogits, ["causal", "cache"]),
        (Samples, ["greedy", "stops", "batch_generation"]),
        (LengthFirst, ["causal", "loss_value", "ignored_targets"]),
        (Tied, ["registered", "save_load"]),
        (lambda: Decoder(inplace=True), ["dropout"]),
    ],
)
def test_a_right_decoder_gets_no_error(build: Callable[[], nn.Module], checks: list[str]):
    assert found(build(), "decoder", *checks) == set()


def test_positions_that_forget_the_cache_are_found_beside_a_start():
    assert found(ForgetsThePast(), "decoder", "cache") == {"cache.one"}


def test_the_target_may_come_first():
    assert found(Both(), "encoder-decoder", "causal", "source", "lengths") == set()


def test_a_model_that_writes_into_its_source_is_found():
    assert found(WritesIntoTheSource(), "encoder-decoder", "determinism") == {"determinism.input"}


def test_dropout_that_never_drops_is_found():
    class QuietDropout(nn.Dropout):
        def forward(self, input):
            return F.dropout(input, self.p, False)

    model = Decoder()
    for block in model.blocks:
        block.dropout = QuietDropout(0.1)
    assert "dropout.rate" in found(model, "decoder", "dropout")


def test_a_norm_of_the_batch_is_no_norm_of_a_token():
    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(WIDTH)

        def forward(self, x):
            return self.norm(x.transpose(1, 2)).transpose(1, 2)

    model = Decoder()
    for block in model.blocks:
        block.norm1, block.norm2 = Norm(), Norm()
    assert found(model, "decoder", "norms", "batch") == {"batch.train"}


@pytest.mark.parametrize(
    "logits", [lambda m, i: m(i.tokens).transpose(1, 2), lambda m, i: (m(i.tokens), None)]
)
def test_an_adapter_that_gives_something_else_is_refused(logits: Callable[..., Tensor]):
    with pytest.raises(RecognitionError, match=r"must give logits of .batch, length, vocab_size"):
        examine(Decoder(), kind="decoder", calls=Calls(logits=logits), only=["causal"])


def test_the_adapter_that_is_shown_works_when_it_is_completed():
    class Scaled(Decoder):
        def forward(self, tokens, mask, scale):
            return self.run(tokens, real=mask[:, :])[0] * scale

    with pytest.raises(RecognitionError) as caught:
        examine(Scaled(), kind="decoder", only=["causal"])
    shown = str(caught.value).split("    calls = ")[1].split("\n")[0].replace("...", "1.0")
    calls = eval(shown, {"Calls": Calls})
    report = examine(Scaled(), kind="decoder", vocab_size=VOCAB, calls=calls, only=["causal"])
    assert calls.masks == {"real"} and report.healthy and report.not_run == []


def test_pytest_starts_without_torch():
    code = "import sys, clearhead.doctor.plugin; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
