"""The doctor leaves models as they were, also those that raise, and claims no more than it has
measured."""

import contextlib
import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearhead.doctor import examine
from clearhead.doctor.attention_trace import trace_attention
from clearhead.doctor.checks import Check, generation, learning
from clearhead.doctor.checks.cache import _finding
from clearhead.doctor.examination import _run
from clearhead.doctor.findings import NotApplicableError
from clearhead.doctor.patient import Patient
from clearhead.doctor.recognition import recognise
from tests.doctor.test_patterns import (
    LIMIT,
    VOCABULARY,
    WIDTH,
    Decoder,
    Loss,
    Packed,
    Starting,
    Swapped,
)


class Gain(nn.Module):
    """Is no norm, and is not called one; a part of it is in evaluation mode for good."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))
        self.part = nn.Dropout(0.1).eval()

    def forward(self, x):
        return self.part(x * self.weight)


class Unscaled(nn.Module):
    """Attention whose scores are not scaled, with a gain beside it."""

    def __init__(self):
        super().__init__()
        self.qkv, self.gain = nn.Linear(WIDTH, 3 * WIDTH), Gain()
        nn.init.normal_(self.qkv.weight, std=0.5)

    def forward(self, x, allowed, _keep=False):
        q, k, v = self.qkv(self.gain(x))[:, None].chunk(3, dim=-1)
        return ((q @ k.mT).masked_fill(~allowed, -torch.inf).softmax(-1) @ v)[:, 0]


class Raising(Decoder):
    """Raises in the last layer, from the n-th call on: what began before must end."""

    n_calls = 0

    def __init__(self, at: int):
        super().__init__()
        self.at, self.layers[0].attend = at, Unscaled()

    def forward(self, tokens):
        Raising.n_calls += 1
        if Raising.n_calls > self.at:
            self.layers[0].attend.qkv = None  # of a copy: what follows raises
        return super().forward(tokens)

    @torch.no_grad()
    def generate(self, tokens, max_new_tokens):
        self.eval()
        raise RuntimeError("no generation today")


def state_of(model: nn.Module) -> dict[str, Any]:
    return {
        path: (
            module.training,
            {name: id(value) for name, value in vars(module).items()},
            [id(hook) for hook in module._forward_pre_hooks.values()],
            [id(hook) for hook in module._forward_hooks.values()],
            [(p.requires_grad, p.dtype, p.grad) for p in module.parameters(recurse=False)],
        )
        for path, module in model.named_modules()
    }


@pytest.mark.parametrize("at", [10**9, 40, 90])
def test_a_model_is_left_as_it_was_also_if_it_raises_in_the_middle(at: int):
    torch.manual_seed(0)
    model = Raising(at).train()
    model.layers[1].eval()
    model.layers[0].attend.gain.part.eval()
    model.head.requires_grad_(False)
    before, weights = state_of(model), copy.deepcopy(model.state_dict())
    kernel, init = F.scaled_dot_product_attention, nn.Module.__init__
    generator, fast = torch.get_rng_state(), torch.backends.mha.get_fastpath_enabled()
    Raising.n_calls = 0
    examine(model, kind="decoder", quick=True)
    assert state_of(model) == before
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), generator)
    assert torch.backends.mha.get_fastpath_enabled() == fast
    assert (F.scaled_dot_product_attention, nn.Module.__init__) == (kernel, init)
    assert torch.is_grad_enabled()


class Stopping(Swapped):
    """An encoder-decoder with a module that is called an encoder, and generation that raises."""

    def __init__(self):
        super().__init__(swapped=False)
        self.encoder = nn.Linear(WIDTH, WIDTH)

    def forward(self, src, tgt):
        self.encoder(self.source(src))
        return super().forward(src, tgt)

    @torch.no_grad()
    def generate(self, src, max_new_tokens):
        raise RuntimeError("no generation today")


def test_generation_that_raises_leaves_no_hook_in_the_shared_copy():
    patient = recognise(Stopping(), kind="encoder-decoder")
    before = state_of(patient.noisy)
    with pytest.raises(RuntimeError, match="no generation today"):
        list(generation.encodes_once(patient))
    assert state_of(patient.noisy) == before


class Insisting(Decoder):
    """Runs in half precision only."""

    def forward(self, tokens):
        return F.linear(self.states(tokens).bfloat16(), self.head.weight)


def test_half_precision_is_examined_in_single_precision_where_the_model_runs_in_it():
    given = [examine(b().bfloat16(), kind="decoder", only=["tied"]) for b in (Decoder, Insisting)]
    assert [r.recognised.get("precision") for r in given] == ["bfloat16 → float32", None]
    assert all(report.outcomes[0].status == "passed" for report in given)


def test_the_generators_of_other_devices_are_left_as_they_were(monkeypatch):
    states: dict[int, str] = {0: "before", 1: "before"}
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(states))
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: states[device])
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda s, device: states.update({device: s}))
    monkeypatch.setattr(
        torch.cuda, "manual_seed_all", lambda seed: states.update(dict.fromkeys(states, "seeded"))
    )
    examine(Decoder(), kind="decoder", only=["tied"])
    assert states == {0: "before", 1: "before"}


class Attempt(nn.Module):
    """Tries a part that raises, and goes on without it."""

    def __init__(self):
        super().__init__()
        self.missing, self.tokens = nn.Linear(1, 1), nn.Embedding(5, 4)

    def forward(self, tokens):
        x = self.tokens(tokens)
        with contextlib.suppress(RuntimeError):
            x = self.missing(x)
        return (x @ x.mT)[:, None].softmax(-1)


def test_an_attention_behind_a_part_that_raised_has_its_own_place():
    model = nn.Sequential(Attempt())
    seen = trace_attention(model, lambda: model(torch.arange(3)[None]), {(3, 3)})
    assert [attention.place for attention in seen] == ["0"]


def test_what_fails_in_double_precision_only_is_not_said_not_to_apply():
    def run(patient: Patient):
        if not patient.runs_in_double:
            raise NotApplicableError("no_double")
        raise RuntimeError("a defect of the model's own")
        yield

    _, outcome = _run(Check("gradient_value", run), recognise(Decoder(), kind="decoder"))
    assert (outcome.status, outcome.reason) == (
        "could not run",
        "RuntimeError: a defect of the model's own",
    )


class NoSlope(Decoder):
    """The gradient is not finite, in double precision only."""

    def forward(self, tokens):
        logits = super().forward(tokens)
        return logits + (logits - logits).sqrt() if logits.dtype == torch.float64 else logits


def test_a_gradient_that_is_not_finite_in_double_precision_is_no_failure():
    report = examine(NoSlope(), kind="decoder", only=["gradient_value"])
    assert [outcome.reason for outcome in report.outcomes] == ["no_gradient_in_double"]


def test_a_frozen_model_is_not_asked_what_it_learns():
    report = examine(Decoder().requires_grad_(False), kind="decoder")
    reasons = {outcome.check: outcome.reason for outcome in report.outcomes}
    checks = ("gradients", "gradient_value", "overfits", "knows_the_future")
    assert {reasons[check] for check in checks} == {"frozen"}
    assert report.not_run == []


def test_a_model_that_takes_four_tokens_is_asked_about_ignored_targets():
    report = examine(Loss(), kind="decoder", max_length=4, only=["ignored_targets"])
    assert report.healthy
    assert report.not_run == []


class Refusing(Starting):
    def forward(self, tokens, use_cache=False, start=0):
        assert tokens.shape[1], "no tokens"
        return super().forward(tokens, use_cache, start)


@pytest.mark.parametrize("length", [2, 3])
def test_a_model_that_takes_few_tokens_is_fed_no_empty_piece(length: int):
    report = examine(Refusing(), kind="decoder", max_length=length, only=["cache"])
    assert [outcome.status for outcome in report.outcomes] == ["passed"]


class DividedByAll(Decoder):
    def forward(self, tokens, targets=None):
        logits = super().forward(tokens)
        if targets is None:
            return logits, None
        total = F.cross_entropy(logits.mT, targets, ignore_index=-1, reduction="sum")
        return logits, total / targets.numel()


def test_a_loss_that_is_divided_by_too_much_is_not_called_a_leak():
    torch.manual_seed(0)
    report = examine(DividedByAll(), kind="decoder", only=["knows_the_future"])
    assert report.findings == ()


def test_a_slow_machine_is_not_taken_for_a_model_that_learns_nothing(monkeypatch):
    monkeypatch.setattr(learning, "_train", lambda *_, **__: [5.0] * (learning._N_STEPS - 1))
    report = examine(Decoder(), kind="decoder", only=["overfits"])
    assert [outcome.reason for outcome in report.outcomes] == ["too_slow"]
    monkeypatch.setattr(learning, "_train", lambda *_, **__: [5.0] * learning._N_STEPS)
    report = examine(Decoder(), kind="decoder", only=["overfits"])
    assert [finding.case for finding in report.findings] == ["overfits.not"]


def test_the_entropy_of_a_small_vocabulary_is_that_of_the_tokens_drawn(monkeypatch):
    monkeypatch.setattr(learning, "_train", lambda *_, **__: [0.0] * 9)

    class Small(Decoder):
        def forward(self, tokens):
            return super().forward(tokens)[..., :17]

    report = examine(Small(), kind="decoder", vocab_size=17, only=["knows_the_future"])
    # The first four of more than sixteen tokens are not drawn: they are often special.
    assert report.findings[0].numbers["symbols"] == 13


def test_where_a_cache_goes_wrong_is_said_in_units_of_the_logits():
    full = torch.full((1, 4, 2), 1e4)
    logits = full + 0.1
    logits[:, 3] += 1e4
    patient: Any = SimpleNamespace(tolerance=1e-4)
    assert _finding(patient, "one", full, logits).numbers["position"] == 3


class Elsewhere(Decoder):
    """Rounds a little differently, depending on where its weights are."""

    def forward(self, tokens):
        return super().forward(tokens) * (1 + 1.2e-7 * (self.head.weight.data_ptr() // 64 % 5))


def test_rounding_is_no_loss_of_weights():
    report = examine(Elsewhere(), kind="decoder", only=["save_load"])
    assert [outcome.status for outcome in report.outcomes] == ["passed"]


class Counting(Packed):
    """Documents do not see each other; positions count from the beginning of the row."""

    def forward(self, tokens, doc_ids=None):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        doc_ids = torch.zeros_like(tokens) if doc_ids is None else doc_ids
        allowed = (doc_ids[:, :, None] == doc_ids[:, None]).tril()
        for layer in self.layers:
            x = layer(x, allowed[:, None])
        return self.head(self.norm(x))


def test_documents_that_stand_further_on_are_not_said_to_see_each_other():
    report = examine(Counting(), kind="decoder", only=["documents"])
    assert [(f.case, f.severity) for f in report.findings] == [("documents.differ", "note")]


class Drawing(Decoder):
    """Draws its tokens, of two, and has no setting that makes it greedy."""

    @torch.no_grad()
    def generate(self, tokens, max_new_tokens, eos_id=None):
        for _ in range(max_new_tokens):
            new = torch.randint(5, 7, (len(tokens), 1))
            tokens = torch.cat((tokens, new), dim=1)
            if eos_id is not None and (tokens == eos_id).any(dim=1).all():
                break
        return tokens


def test_where_tokens_are_drawn_chance_is_not_taken_for_an_end():
    for seed in range(5):
        report = examine(Drawing(), kind="decoder", only=["stops"], seed=seed)
        assert [outcome.reason for outcome in report.outcomes] == ["only_samples"]


class Total(Decoder):
    """max_length counts the prompt."""

    @torch.no_grad()
    def generate(self, tokens, max_length, temperature=1.0):
        while tokens.shape[1] < max_length:
            shares = (self(tokens)[:, -1] / temperature).softmax(-1)
            tokens = torch.cat((tokens, shares.multinomial(1)), dim=1)
        return tokens


def test_a_limit_that_counts_the_prompt_is_not_said_to_take_one_prompt():
    report = examine(Total(), kind="decoder", only=["temperature"])
    assert [outcome.reason for outcome in report.outcomes] == ["other_count"]


def test_layers_that_are_shared_on_purpose_are_not_an_error():
    class Repeated(Decoder):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([self.layers[0]] * 3)

    report = examine(Repeated(), kind="decoder", only=["shared"])
    assert [(f.case, f.severity) for f in report.findings] == [("shared.layers", "warning")]


class Experts(nn.Module):
    """Seven experts, as many as the source that is drawn has tokens: tokens are flattened."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, 7)
        self.experts = nn.Parameter(torch.randn(7, WIDTH, WIDTH) / 4)

    def forward(self, x):
        tokens = x.flatten(0, 1)
        shares = self.gate(tokens).softmax(-1)
        return torch.einsum("td,edf,te->tf", tokens, self.experts, shares).view_as(x)


class Routed(Swapped):
    def __init__(self):
        super().__init__(swapped=False)
        self.head = nn.Sequential(Experts(), self.head)


def test_as_many_experts_as_source_tokens_are_no_leak():
    report = examine(Routed(), kind="encoder-decoder", only=["target_leak"])
    assert [outcome.status for outcome in report.outcomes] == ["passed"]


class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        self.places = nn.Embedding(LIMIT, WIDTH)

    def forward(self, x):
        return x + self.places(torch.arange(x.shape[1]))


class Encoding(nn.Module):
    """One module adds positions to source and target. Generation gives the encoder the source, or,
    a bug, the tokens that it has generated as well."""

    def __init__(self, grows=False):
        super().__init__()
        self.grows, self.pos_encoder = grows, Positions()
        self.source, self.target = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(VOCABULARY, WIDTH)
        self.encoder = nn.TransformerEncoderLayer(WIDTH, 2, 24, batch_first=True)
        self.decoder = nn.TransformerDecoderLayer(WIDTH, 2, 24, batch_first=True)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, src, tgt):
        memory, n = self.encoder(self.pos_encoder(self.source(src))), tgt.shape[1]
        future = torch.ones(n, n, dtype=torch.bool).triu(1)
        return self.head(self.decoder(self.pos_encoder(self.target(tgt)), memory, tgt_mask=future))

    @torch.no_grad()
    def generate(self, src, max_new_tokens):
        tokens = torch.ones(len(src), 1, dtype=torch.long)
        for _ in range(max_new_tokens):
            given = torch.cat((src, tokens[:, 1:]), dim=1) if self.grows else src
            tokens = torch.cat((tokens, self(given, tokens)[:, -1:].argmax(-1)), dim=1)
        return tokens


def test_a_module_that_serves_source_and_target_is_not_taken_for_the_encoder():
    found = [
        {f.case for f in examine(model, kind="encoder-decoder", only=["encodes_once"]).findings}
        for model in (Encoding(), Encoding(grows=True))
    ]
    assert found == [{"encodes_once.again"}, {"encodes_once.grows"}]
