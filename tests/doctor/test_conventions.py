"""Conventions that differ between authors, each in a small model that is right: no error is
reported for it, and the true bug beside it is still found."""

import re
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearhead.doctor import Examination, examine
from clearhead.doctor.recognition import RecognitionError, recognise
from clearhead.doctor.texts import explain
from tests.doctor.specimens import healthy, serving
from tests.doctor.specimens.healthy import LIMIT, VOCAB, WIDTH, Block, causal

Build = Callable[[], nn.Module]


def report_on(build: Build, kind: str, *only: str) -> Examination:
    torch.manual_seed(0)
    report = examine(build(), kind=kind, only=only)
    assert report.not_run == []
    return report


def found(build: Build, kind: str, *only: str) -> dict[str, str]:
    return {f.case: f.severity for f in report_on(build, kind, *only).findings}


def errors(build: Build, kind: str, *only: str) -> set[str]:
    return {case for case, severity in found(build, kind, *only).items() if severity != "note"}


class Adding(healthy.Attention):
    """The mask is a float that is added to scores: 0 or -inf."""

    def mask(self, scores, allowed):
        return scores if allowed is None else scores + allowed


class AddsLate(Adding):
    """A bug: the mask is added to the weights."""

    def mask(self, scores, allowed):
        return scores

    def normalise(self, scores, allowed):
        weights = scores.softmax(dim=-1)
        return weights if allowed is None else weights * allowed.exp()


class Encoder(nn.Module):
    def __init__(self, attention: type[nn.Module] = Adding):
        super().__init__()
        self.embedding, self.max_length = healthy.Embedding(), LIMIT
        self.blocks = nn.ModuleList(Block(attention=attention) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB)

    def forward(self, tokens, attention_mask=None):
        x = self.embedding(tokens)
        for block in self.blocks:
            x, _ = block(x, attention_mask)
        return self.head(self.norm(x))


class AddsOnes(Encoder):
    """A bug: ones and zeros are added to scores as they are."""

    def forward(self, tokens, attention_mask=None):
        added = None if attention_mask is None else attention_mask[:, None, None]
        return super().forward(tokens, added)


class Pair(nn.Module):
    """source, target → logits; its padding mask is True at padding."""

    max_length = LIMIT

    def __init__(self):
        super().__init__()
        self.source, self.target = healthy.Embedding(), healthy.Embedding()
        self.encoder = nn.ModuleList(Block() for _ in range(2))
        self.decoder = nn.ModuleList(Block(cross=True) for _ in range(2))
        self.norm, self.last = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCAB)

    def encode(self, src, allowed=None):
        x = self.source(src)
        for block in self.encoder:
            x, _ = block(x, allowed)
        return self.norm(x)

    def decode(self, tgt, memory, allowed=None):
        x = self.target(tgt)
        for block in self.decoder:
            x, _ = block(x, causal(tgt.shape[1], tgt.shape[1]), memory, allowed)
        return self.head(self.last(x))

    def crossed(self, allowed):
        return allowed

    def forward(self, src, tgt, src_padding_mask=None):
        allowed = None if src_padding_mask is None else ~src_padding_mask[:, None, None]
        return self.decode(tgt, self.encode(src, allowed), self.crossed(allowed))


class CrossInverted(Pair):
    def __init__(self):
        super().__init__()
        for module in self.modules():
            if isinstance(module, healthy.Attention):
                module.mask = lambda scores, allowed: (
                    scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)
                )

    def crossed(self, allowed):
        return None if allowed is None else ~allowed


class CrossForgotten(Pair):
    def crossed(self, allowed):
        return None


def test_an_optional_mask_that_is_added_to_scores_is_given_floats():
    checks = ("padding", "pad_value", "padding_finite")
    report = report_on(Encoder, "encoder", *checks)
    assert "added to scores" in report.recognised["real"]
    assert not {f.case for f in report.findings} & {"padding.right", "pad_value.matters"}
    for build in (lambda: Encoder(AddsLate), AddsOnes):
        assert "padding.right" in errors(build, "encoder", *checks)


def test_a_mask_that_two_attentions_read_in_opposite_senses_is_a_warning():
    checks = ("padding", "pad_value", "padding_finite")
    torch.manual_seed(0)
    report = examine(CrossInverted(), kind="encoder-decoder", only=checks)
    assert [(f.case, f.severity) for f in report.findings] == [("padding.unread", "warning")]
    assert {o.reason for o in report.outcomes if o.check != "padding"} == {"unread_mask"}
    assert errors(Pair, "encoder-decoder", *checks) == set()
    assert "padding.right" in errors(CrossForgotten, "encoder-decoder", *checks)


class Halved(Block):
    """(x + f(x)) · √½"""

    def attend(self, x, allowed, past):
        x, past = super().attend(x, allowed, past)
        return x * 0.5**0.5, past

    def feed(self, x):
        return super().feed(x) * 0.5**0.5


class Gate(nn.Module):
    """A GRU's gate in the place of the sum."""

    def __init__(self):
        super().__init__()
        self.new, self.old = (nn.Linear(WIDTH, 2 * WIDTH, bias=False) for _ in range(2))
        self.candidate = nn.Linear(WIDTH, WIDTH, bias=False)
        self.bias = nn.Parameter(torch.full((WIDTH,), 2.0))

    def forward(self, x, y):
        opened, added = self.new(y).chunk(2, dim=-1)
        share = torch.sigmoid(opened + self.old(x).chunk(2, dim=-1)[0] - self.bias)
        return (1 - share) * x + share * torch.tanh(added + self.candidate(x))


class GatedBlock(Block):
    def __init__(self, **settings):
        super().__init__(**settings)
        self.gate_1, self.gate_2 = Gate(), Gate()

    def attend(self, x, allowed, past):
        h = self.norm_1(x)
        change, past = self.attention(h, h, allowed, past)
        return self.gate_1(x, change), past

    def feed(self, x):
        return self.gate_2(x, self.ff(self.norm_2(x)))


class PlacedBlock(Block):
    """Positions are added before every layer."""

    def forward(self, x, allowed=None, memory=None, memory_allowed=None, past=None):
        place = torch.arange(x.shape[1], device=x.device)[:, None] / 10.0 ** torch.arange(WIDTH)
        return super().forward(x + place.sin().to(x), allowed, memory, memory_allowed, past)


class AfterNorm(Block):
    def feed(self, x):
        x = self.norm_2(x)
        return x + self.ff(x)


class HalvedAfterNorm(Halved):
    """A factor, and the bug."""

    def feed(self, x):
        x = self.norm_2(x)
        return (x + self.ff(x)) * 0.5**0.5


@pytest.mark.parametrize("block", [Halved, GatedBlock, PlacedBlock])
def test_a_stream_without_a_norm_in_it_is_not_said_to_have_one(block):
    assert errors(lambda: healthy.Decoder(block=block), "decoder", "residual") == set()


class Repeated(healthy.Decoder):
    """The same layers, again and again, as in a Universal Transformer."""

    def scores(self, x):
        for block in [*self.blocks, *self.blocks]:
            x, _ = block(x, self.allowed(x.shape[1], x.shape[1]))
        return super().scores(x)


class RepeatedUnnormalised(Repeated):
    """A bug: a norm stands between the runs, and none behind the last."""

    def scores(self, x):
        x = self.norm(x)
        for block in self.blocks:
            x, _ = block(x, self.allowed(x.shape[1], x.shape[1]))
        return self.head(x)


def test_a_norm_behind_the_last_run_of_a_layer_is_seen():
    assert errors(Repeated, "decoder", "residual") == set()
    assert "residual.no_final_norm" in errors(RepeatedUnnormalised, "decoder", "residual")


@pytest.mark.parametrize("block", [AfterNorm, HalvedAfterNorm])
def test_a_norm_in_the_stream_is_found(block):
    cases = errors(lambda: healthy.Decoder(block=block), "decoder", "residual")
    assert "residual.after_norm" in cases


class Shifted(healthy.LabelDecoder):
    """Labels come shifted already."""

    shift = 0


class ShiftedAndDividedByAll(Shifted):
    def forward(self, tokens, labels=None):
        logits, loss = super().forward(tokens, labels)
        return logits, None if loss is None else loss * (labels != -100).sum() / labels.numel()


class OwnToken(healthy.Decoder):
    """A bug: only a loss comes back, of each position with its own token."""

    def forward(self, tokens):
        return F.cross_entropy(super().forward(tokens).transpose(1, 2), tokens)


def test_labels_that_come_shifted_are_a_warning_and_no_further_defect():
    checks = ("loss_value", "ignored_targets", "accumulation", "knows_the_future")
    cases = found(Shifted, "decoder", *checks)
    assert cases.pop("loss_value.shift_0") == "warning"
    assert set(cases.values()) <= {"note"}
    divided = found(ShiftedAndDividedByAll, "decoder", "ignored_targets")
    assert divided["ignored_targets.divided_by_all"] == "error"


def test_a_loss_of_the_own_token_is_an_error_where_the_model_makes_its_targets():
    assert found(OwnToken, "decoder", "loss_value") == {"loss_value.own_token": "error"}


class Refusing:
    """Before a decoder with a cache: one token at a time."""

    def refuse(self):
        raise ValueError("with a cache, one token at a time")

    def forward(self, tokens, *masks, cache=None, **more):
        if cache is not None and tokens.shape[1] != 1:
            self.refuse()
        return super().forward(tokens, *masks, cache=cache, **more)  # type: ignore[misc]


class OneAtATime(Refusing, healthy.CachedDecoder):
    def forward(self, tokens, cache=None):
        return super().forward(tokens, cache=cache)


class PaddedOneAtATime(Refusing, serving.PaddedCachedDecoder):
    def forward(self, tokens, mask=None, cache=None):
        return super().forward(tokens, mask=mask, cache=cache)


class ForgetsPadsOneAtATime(PaddedOneAtATime, serving.ForgetsOldPads):
    """A bug."""


class Reordering(serving.StoringDecoder):
    def forward(self, tokens, cache=None):
        if cache is not None and cache.layers[0] is not None and tokens.shape[1] != 1:
            raise NotImplementedError("with a cache, one token at a time")
        return super().forward(tokens, cache)


class ReordersKeysOnly(Reordering):
    """A bug."""

    store = serving.KeysOnly


class Asserts(OneAtATime):
    def refuse(self):
        raise AssertionError


class Unpacks(OneAtATime):
    """A bug that raises a ValueError by chance."""

    def refuse(self):
        _, _ = (1, 2, 3)


class OneAtATimeOffByOne(OneAtATime):
    def start(self, cache):
        return max(super().start(cache) - 1, 0)


@pytest.mark.parametrize("build", [OneAtATime, Asserts, PaddedOneAtATime, Reordering])
def test_a_cache_that_takes_one_token_at_a_time_is_a_note(build):
    assert found(build, "decoder", "cache") == {"cache.one_at_a_time": "note"}


def test_a_cache_of_one_token_at_a_time_is_still_compared():
    assert found(Unpacks, "decoder", "cache") == {"cache.fails": "error"}
    assert errors(OneAtATimeOffByOne, "decoder", "cache") == {"cache.one"}
    assert errors(ForgetsPadsOneAtATime, "decoder", "cache") == {"cache.padded"}
    assert errors(ReordersKeysOnly, "decoder", "cache") == {"cache.reordered"}


class Experts(nn.Module):
    """Each token goes to one of eight experts."""

    def __init__(self, called: int = 8):
        super().__init__()
        self.called, self.router = called, nn.Linear(WIDTH, 8, bias=False)
        self.experts = nn.ModuleList(healthy.FeedForward() for _ in range(8))

    def forward(self, x):
        share, chosen = self.router(x)[..., : self.called].softmax(dim=-1).max(dim=-1)
        out = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            here = chosen == index
            if here.any():
                out[here] = share[here][:, None] * expert(x[here])
        return out


class Noisy(nn.Module):
    """The router's noise is learnt, and there in training only."""

    def __init__(self):
        super().__init__()
        self.router, self.noise = (nn.Linear(WIDTH, 2, bias=False) for _ in range(2))
        self.experts = nn.ModuleList(healthy.FeedForward() for _ in range(2))

    def forward(self, x):
        scores = self.router(x)
        if self.training:
            scores = scores + torch.randn_like(scores) * F.softplus(self.noise(x))
        shares = scores.softmax(dim=-1)
        return sum(shares[..., i, None] * expert(x) for i, expert in enumerate(self.experts))


def fed_by(feed: Build) -> Build:
    def build() -> nn.Module:
        model = healthy.Decoder()
        for block in model.blocks:
            block.ff = feed()
        return model

    return build


class SecondHead(healthy.Decoder):
    """In training, the token after the next is predicted too."""

    def __init__(self):
        super().__init__()
        self.second = nn.Linear(WIDTH, VOCAB)

    def scores(self, x):
        x = self.norm(x)
        return (self.head(x), self.second(x)) if self.training else self.head(x)


class Unlearnt(SecondHead):
    """A bug: the second head is built and not called."""

    def scores(self, x):
        return self.head(self.norm(x))


@pytest.mark.parametrize("build", [fed_by(Experts), fed_by(Noisy), SecondHead])
def test_what_few_tokens_or_evaluation_do_not_use_is_not_said_to_be_unused(build):
    assert "gradients.none" not in errors(build, "decoder", "gradients")


@pytest.mark.parametrize("build", [fed_by(lambda: Experts(called=7)), Unlearnt])
def test_what_is_never_used_is_found(build):
    assert "gradients.none" in errors(build, "decoder", "gradients")


class Unknown(healthy.Decoder):
    """Logits as (1, batch, vocab, length), and more positions than tokens."""

    def __init__(self):
        super().__init__()
        self.embedding.positions = nn.Embedding(2 * VOCAB, WIDTH)

    def forward(self, tokens):
        return super().forward(tokens).transpose(1, 2)[None]


def test_an_adapter_is_suggested_with_the_vocabulary_and_not_with_the_largest_table():
    with pytest.raises(RecognitionError) as error:
        recognise(Unknown(), kind="decoder")
    assert f"vocab_size={VOCAB}," in str(error.value)
    assert "IndexError" not in str(error.value)


class Generates(Pair):
    """Returns what it generated, without the token that started it."""

    start = 1

    def choose(self, logits):
        return logits.argmax(dim=-1)

    def forward(self, src, tgt):
        return self.decode(tgt, self.encode(src))

    @torch.no_grad()
    def generate(self, src, max_new_tokens=10):
        training = self.training
        self.eval()
        memory, tokens = self.encode(src), torch.full((len(src), 1), self.start)
        for _ in range(max_new_tokens):
            new = self.choose(self.decode(tokens, memory)[:, -1])
            tokens = torch.cat((tokens, new[:, None]), dim=1)
        self.train(training)
        return self.returned(tokens)

    def returned(self, tokens):
        return tokens[:, 1:]


class WithStart(Generates):
    def returned(self, tokens):
        return tokens


class TakesTheSecond(Generates):
    """A bug: the second best token."""

    def choose(self, logits):
        return logits.topk(2, dim=-1).indices[:, 1]


def test_generation_may_return_the_new_tokens_with_or_without_the_start():
    for build in (Generates, WithStart):
        assert errors(build, "encoder-decoder", "greedy") == set()
    assert errors(TakesTheSecond, "encoder-decoder", "greedy") == {"greedy.not_best"}


class Slots(healthy.Attention):
    """Three learned keys and values beside those of the tokens."""

    def __init__(self, *sizes, **settings):
        super().__init__(*sizes, **settings)
        self.keys, self.values = (nn.Parameter(torch.randn(3, WIDTH)) for _ in range(2))

    def forward(self, x, memory, allowed=None, past=None):
        batch, length, _ = x.shape
        k = torch.cat((self.keys.expand(batch, -1, -1), self.key(memory)), dim=1)
        v = torch.cat((self.values.expand(batch, -1, -1), self.value(memory)), dim=1)
        q, k, v = self.split(self.query(x)), self.split(k), self.split(v)
        allowed = torch.cat((torch.ones(length, 3, dtype=torch.bool), allowed), dim=1)
        weights = self.normalise(self.mask(self.scores(q, k), allowed), allowed)
        return self.output(self.merge(weights @ v)), None


class Blocks(healthy.Attention):
    """Blocks of four tokens, each of which looks at itself and the block before."""

    size = 4

    def forward(self, x, memory, allowed=None, past=None):
        length, size = x.shape[1], self.size
        padded = F.pad(x, (0, 0, 0, -length % size))
        q, k, v = (
            self.split(layer(padded)).unflatten(2, (-1, size))
            for layer in (self.query, self.key, self.value)
        )
        k, v = (torch.cat((F.pad(t, (0, 0, 0, 0, 1, 0))[:, :, :-1], t), dim=3) for t in (k, v))
        places = torch.arange(padded.shape[1]).view(-1, size)
        keys = torch.cat((places - size, places), dim=1)[:, None]
        allowed = (keys <= places[..., None]) & (keys >= 0)
        weights = self.normalise(self.mask(self.scores(q, k), allowed), allowed)
        return self.output(self.merge((weights @ v).flatten(2, 3)[:, :, :length])), None


class Merged(healthy.Attention):
    """A bug: heads are merged without the transpose."""

    def merge(self, x):
        batch, heads, length, width = x.shape
        return x.reshape(batch, length, heads * width)


def attending_by(*attentions: type[nn.Module]) -> Build:
    def build() -> nn.Module:
        model = healthy.Decoder()
        for block, attention in zip(model.blocks, attentions):
            block.attention = attention()
        return model

    return build


@pytest.mark.parametrize("attention", [Slots, Blocks])
def test_attention_to_learned_keys_or_within_blocks_is_attention(attention):
    assert found(attending_by(attention, healthy.Attention), "decoder", "mixing") == {}
    for order in ((attention, Merged), (Merged, attention)):
        report = report_on(attending_by(*order), "decoder", "mixing")
        place = f"blocks.{order.index(Merged)}.attention"
        cases = [(f.case, f.place) for f in report.findings]
        assert cases == [("mixing.outside_attention", place)]


class MovesItsTokens(healthy.Decoder):
    """Begins with a learned vector; logits score the token at their own position."""

    def __init__(self):
        super().__init__()
        self.first = nn.Parameter(torch.randn(WIDTH))

    def forward(self, tokens):
        x = self.embedding(tokens)
        x = torch.cat((self.first.expand(len(x), 1, -1), x[:, :-1]), dim=1)
        for block in self.blocks:
            x, _ = block(x, self.allowed(x.shape[1], x.shape[1]))
        return self.scores(x)


class MovesAndMerges(MovesItsTokens):
    def __init__(self):
        super().__init__()
        self.blocks[1].attention = Merged()


def test_a_decoder_that_moves_its_tokens_is_a_note():
    assert found(MovesItsTokens, "decoder", "mixing") == {"mixing.shifted": "note"}
    assert "mixing.outside_attention" in errors(MovesAndMerges, "decoder", "mixing")


class Divergence(healthy.LossDecoder):
    """Label smoothing as the Annotated Transformer has it: nothing goes to padding."""

    without, factor = 2, 1.0

    def loss(self, logits, targets):
        kept, spread = targets != -100, 0.1 * self.factor / (VOCAB - self.without)
        smooth = torch.full_like(logits, spread)
        smooth.scatter_(-1, targets.clamp(min=0)[..., None], 0.9)
        if self.without == 2:
            smooth[..., 0] = 0
        apart = F.kl_div(logits.log_softmax(dim=-1), smooth, reduction="none").sum(dim=-1)
        return apart[kept].sum() / kept.sum()


class DivergenceToOthers(Divergence):
    without = 1


class TooSmooth(Divergence):
    """A bug: the smoothed target is no distribution."""

    factor = 2.0


class Balanced(healthy.LossDecoder):
    """A term that no target changes is added."""

    factor = 1.0

    def loss(self, logits, targets):
        return self.factor * super().loss(logits, targets) + 0.01 * logits.logsumexp(-1).mean() ** 2


class BalancedTwice(Balanced):
    """A bug: the loss itself is doubled."""

    factor = 2.0


@pytest.mark.parametrize("build", [Divergence, DivergenceToOthers, Balanced])
def test_a_loss_with_smoothing_by_divergence_or_a_term_of_its_own_is_known(build):
    assert errors(build, "decoder", "loss_value", "ignored_targets", "accumulation") == set()


@pytest.mark.parametrize("build", [TooSmooth, BalancedTwice])
def test_a_loss_that_no_form_explains_is_found(build):
    assert errors(build, "decoder", "loss_value") == {"loss_value.other"}


class Inverted(healthy.Decoder):
    """A bug: 1 at padding, under the name of what tokenizers return."""

    def real(self, attention_mask):
        return attention_mask == 0

    def forward(self, input_ids, attention_mask=None):
        n, mask = input_ids.shape[1], None
        real = None if attention_mask is None else self.real(attention_mask)
        x = self.embedding(input_ids, mask=real)
        mask = causal(n, n) if real is None else causal(n, n) & real[:, None, None]
        for block in self.blocks:
            x, _ = block(x, mask)
        return self.scores(x)


class Usual(Inverted):
    def real(self, attention_mask):
        return attention_mask != 0


class Infinite(healthy.Attention):
    def mask(self, scores, allowed):
        return scores.masked_fill(~allowed, -torch.inf)


class SeesNothingFirst(healthy.Decoder):
    """A bug: the first position sees no token at all, not even itself."""

    def allowed(self, n_queries, n_keys):
        return causal(n_queries, n_keys).tril(-1)


def test_an_attention_mask_that_is_true_at_padding_is_named():
    assert found(Inverted, "decoder", "padding", "pad_value") == {"padding.inverted": "warning"}
    assert found(Usual, "decoder", "padding", "pad_value") == {}


def test_padding_that_makes_logits_nan_is_said_in_words():
    report = report_on(lambda: Usual(attention=Infinite), "decoder", "padding")
    assert [f.case for f in report.findings] == ["padding.not_finite"]
    assert "nan of" not in str(report)


def test_of_logits_that_are_nan_nothing_is_said_but_what_made_them():
    report = examine(SeesNothingFirst(attention=Infinite), kind="decoder", quick=True)
    assert {f.case for f in report.findings} == {"output.not_finite", "weights.not_itself"}
    reasons = {o.check: o.reason for o in report.outcomes}
    assert reasons["context"] == reasons["residual"] == "not_finite"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_weight_that_is_nan_is_named(language):
    model = healthy.Decoder()
    with torch.no_grad():
        name, weight = [both for both in model.named_parameters() if both[1].dim() == 2][-1]
        weight[3] = torch.nan
    report = examine(model, kind="decoder", quick=True)
    finding = report.findings[0]
    assert finding.case == "output.weights" and finding.because is None
    assert "output.not_finite" not in {finding.case for finding in report.findings}
    said = explain(finding, language)
    assert f"`{name}`" in said.seen and f"{weight.shape[1]:,}" in said.seen
    assert "softmax" not in said.why + said.wrong


def test_a_vocabulary_larger_than_the_table_is_refused_by_the_tables_name():
    with pytest.raises(RecognitionError) as raised:
        examine(healthy.Decoder(), kind="decoder", vocab_size=5000, quick=True)
    first = str(raised.value).splitlines()[0]
    assert re.match(
        r"vocab_size=5,000 is more than the \d+ rows of `[\w.]+` \(nn\.Embedding\); leave", first
    )
    with pytest.raises(RecognitionError, match="vocab_size=5,000 超过了"):
        examine(healthy.Decoder(), kind="decoder", vocab_size=5000, quick=True, language="zh")


def test_a_decoder_examined_as_an_encoder_decoder_is_told_its_kind():
    with pytest.raises(RecognitionError, match="is kind='encoder-decoder' right"):
        examine(healthy.Decoder(), kind="encoder-decoder", quick=True)


class Headless(healthy.Decoder):
    """Returns hidden states."""

    def forward(self, tokens):
        return super().forward(tokens)[..., :7]


def test_hidden_states_in_the_place_of_logits_are_named_first():
    with pytest.raises(RecognitionError) as raised:
        examine(Headless(), kind="decoder", quick=True)
    first = str(raised.value).splitlines()[0]
    size = f"the size of the vocabulary, {VOCAB}"
    assert first.startswith("`forward` returns vectors of size 7") and size in first


def test_a_decoder_examined_as_an_encoder_is_told_its_kind():
    report = examine(healthy.Decoder(), kind="encoder", only=["context"])
    (finding,) = report.findings
    said = explain(finding, "en")
    assert "pass kind='decoder' (command: --kind decoder)" in said.seen
    assert "mask" in said.wrong and "head" not in said.wrong


class Ragged(healthy.Decoder):
    """Generation returns lists that end where their rows do."""

    stops, best = True, 0

    @torch.no_grad()
    def generate(self, tokens, max_new_tokens=8, eos_id=None):
        training, rows = self.training, []
        self.eval()
        for row in tokens[:, None]:
            for _ in range(max_new_tokens):
                scores = self(row[:, -LIMIT:])[:, -1]
                row = torch.cat((row, scores.topk(2).indices[:, [self.best]]), dim=1)
                if self.stops and int(row[0, -1]) == eos_id:
                    break
            rows.append(row[0])
        self.train(training)
        return [self.returned(row, tokens.shape[1]) for row in rows]

    def returned(self, row, n_prompt):
        return row.tolist()


class RaggedTensors(Ragged):
    """The new tokens only."""

    def returned(self, row, n_prompt):
        return row[n_prompt:]


class RunsOn(Ragged):
    stops = False


class TakesTheSecondBest(Ragged):
    best = 1


@pytest.mark.parametrize("build", [Ragged, RaggedTensors])
def test_generation_may_return_rows_of_different_lengths(build):
    assert errors(build, "decoder", "greedy", "stops", "batch_generation") == set()


def test_bugs_of_generation_that_returns_lists_are_found():
    assert "stops.runs_on" in errors(RunsOn, "decoder", "stops")
    assert "greedy.not_best" in errors(TakesTheSecondBest, "decoder", "greedy")
