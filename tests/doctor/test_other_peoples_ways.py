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


class CausalByAFlag(Decoder):
    """As torch's kernel has it: with a cache, the triangle begins at the first key."""

    def forward(self, t, past_kv=None, is_causal=False):
        before = past_kv[0][0].shape[2] if past_kv else 0
        n, kept = t.shape[1], []
        x = self.tokens(t) + self.positions(torch.arange(before, before + n))
        mask = torch.ones(n, before + n, dtype=torch.bool)
        for i, block in enumerate(self.blocks):
            past = past_kv[i] if past_kv else None
            x, own = block(x, mask.tril() if is_causal else mask, past=past)
            kept.append(own)
        return self.head(self.norm(x)), kept


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


class LengthFirstByView(Decoder):
    def forward(self, src, targets):
        logits = self.run(src.t())[0].transpose(0, 1).contiguous()
        return logits, F.cross_entropy(logits.view(-1, VOCAB), targets.view(-1))


class StartBesideANewCache(Decoder):
    def new_cache(self, batch, length):
        return []

    def forward(self, tokens, cache=None, start_pos=0):
        logits, kept = self.run(tokens, start_pos, cache)
        if cache is not None:
            cache[:] = kept
        return logits


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


class TwoVocabularies(Both):
    def __init__(self, n_source: int):
        super().__init__()
        self.source = nn.Embedding(n_source, WIDTH)


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
        (LengthFirstByView, ["causal", "batch", "loss_value"]),
        (StartBesideANewCache, ["causal", "cache"]),
        (Tied, ["registered", "save_load"]),
        (lambda: Decoder(inplace=True), ["dropout"]),
    ],
)
def test_a_right_decoder_gets_no_error(build: Callable[[], nn.Module], checks: list[str]):
    assert found(build(), "decoder", *checks) == set()


def test_a_flag_that_makes_a_decoder_causal_is_set_and_noted():
    report = examine(CausalByAFlag(), kind="decoder", only=["causal", "cache"])
    assert report.recognised["causal"] == "is_causal=True"
    # Several tokens behind a cache are masked wrongly by such a kernel; one is right.
    assert {finding.case for finding in report.findings} == {"causal.by_caller", "cache.several"}


def test_positions_that_forget_the_cache_are_found_beside_a_start():
    assert found(ForgetsThePast(), "decoder", "cache") == {"cache.one"}


def test_the_target_may_come_first():
    assert found(Both(), "encoder-decoder", "causal", "source", "lengths") == set()


@pytest.mark.parametrize("n_source", [31, 97])
@pytest.mark.parametrize("vocab_size", [None, VOCAB])
def test_an_adapter_may_be_of_two_vocabularies(n_source: int, vocab_size: int | None):
    calls = Calls(logits=lambda model, inputs: model(inputs.tokens, inputs.source))
    report = examine(
        TwoVocabularies(n_source),
        kind="encoder-decoder",
        vocab_size=vocab_size,
        calls=calls,
        only=["causal", "source", "lengths"],
    )
    assert report.healthy and report.not_run == []


def test_lengths_are_of_the_source_by_their_names():
    class WithLengths(Both):
        def forward(self, tgt, src, tgt_lens, src_lens):
            assert int(src_lens.max()) <= src.shape[1] and int(tgt_lens.max()) <= tgt.shape[1]
            return self.translate(src, tgt)

    report = examine(WithLengths(), kind="encoder-decoder", only=["causal"])
    assert report.healthy and "src_lens" in report.recognised["source_real"]


def test_the_adapter_that_is_shown_knows_a_target_that_comes_first():
    class Scaled(Both):
        def forward(self, tgt, src, scale):
            return self.translate(src, tgt) * scale["by"]

    with pytest.raises(RecognitionError, match=r"model\(inputs\.tokens, inputs\.source, scale="):
        examine(Scaled(), kind="encoder-decoder", only=["causal"])


def test_a_model_that_writes_into_its_source_is_found():
    assert found(WritesIntoTheSource(), "encoder-decoder", "determinism") == {"determinism.input"}


def test_a_length_first_model_that_writes_into_its_tokens_is_found():
    class Writes(LengthFirst):
        def forward(self, src, targets=None):
            src[0] = 3
            return super().forward(src, targets)

    assert "determinism.input" in found(Writes(), "decoder", "determinism")


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


def test_a_missing_scale_is_found_behind_a_softmax_that_is_a_module():
    class ByModule(Attention):
        def __init__(self):
            super().__init__()
            self.softmax = nn.Softmax(dim=-1)

        def forward(self, x, mask=None, memory=None, past=None):
            q, k, v = (
                each(x).unflatten(2, (HEADS, -1)).transpose(1, 2)
                for each in (self.q, self.k, self.v)
            )
            scores = (q @ k.transpose(-1, -2)).masked_fill(~mask, -1e9)
            return self.o((self.softmax(scores) @ v).transpose(1, 2).flatten(2)), (k, v)

    model = Decoder()
    for block in model.blocks:
        block.attention = ByModule()
    assert {case.split(".")[0] for case in found(model, "decoder", "attention_scale")} == {
        "attention_scale"
    }


class Translates(Both):
    def forward(self, src, tgt):
        return self.translate(src, tgt)

    @torch.no_grad()
    def greedy_decode(self, src, max_len, eos_id=2, *, any_row=False):
        tokens = torch.ones(len(src), 1, dtype=torch.long)
        ended = torch.zeros(len(src), dtype=torch.bool)
        for _ in range(max_len):
            new = self(src, tokens)[:, -1].argmax(-1)
            tokens = torch.cat((tokens, new[:, None]), 1)
            ended |= new == eos_id
            if ended.any() if any_row else ended.all():
                break
        return tokens[:, 1:]


class EndsWithTheFirst(Translates):
    def greedy_decode(self, src, max_len, eos_id=2):
        return super().greedy_decode(src, max_len, eos_id, any_row=True)


def test_a_translation_may_come_back_without_its_start():
    assert found(Translates(), "encoder-decoder", "greedy", "stops") == set()


def test_rows_of_a_translation_that_are_cut_with_the_first_that_ends_are_found():
    assert "stops.any_row" in found(EndsWithTheFirst(), "encoder-decoder", "stops")


def test_a_loss_that_leaves_out_a_token_that_nobody_names_gets_no_error():
    class LeavesOutOne(Decoder):
        def forward(self, t, targets=None):
            logits = self.run(t)[0]
            if targets is None:
                return logits, None
            flat = logits.flatten(0, 1), targets.flatten()
            return logits, F.cross_entropy(*flat, ignore_index=1)

    report = examine(LeavesOutOne(), kind="decoder", only=["loss_value", "ignored_targets"])
    assert report.healthy and "ignored" not in report.recognised["loss"]


def test_places_to_predict_are_all_asked_for():
    class OfPlaces(Decoder):
        def forward(self, input_ids, masked_pos):
            states = self.run(input_ids)[0]
            return states.gather(1, masked_pos[:, :, None].expand(-1, -1, VOCAB))

    assert examine(OfPlaces(), kind="encoder", only=["lengths"]).healthy


def test_a_table_of_rotations_is_no_table_of_sinusoids():
    model = Decoder()
    angles = torch.outer(torch.arange(32.0), 0.1 ** torch.arange(8.0))
    model.register_buffer("pos_cis", torch.polar(torch.ones_like(angles), angles))
    assert found(model, "decoder", "sinusoids") == set()


def test_a_start_among_further_arguments_is_passed():
    class StartInKwargs(Decoder):
        def forward(self, t, past_key_values=None, **args):
            return self.run(t, args.get("start_pos", 0), past_key_values)

    assert found(StartInKwargs(), "decoder", "causal", "cache") == set()
