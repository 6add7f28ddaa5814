"""What must hold for every model that the options can describe.

Each invariant is tried on configurations drawn over the whole option space: 25 at each push, 200
every night.
"""

import copy
import itertools
import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from clearhead.config import ModelConfig
from clearhead.models import CausalLM, Seq2Seq, build_model
from clearhead.parts.attention import explicit_attention, fused_attention
from clearhead.parts.cache import KeysValues
from clearhead.parts.recorder import Recorder
from tests.drawing import configs, draws, first_model, random_model, random_tokens, run

drawn_often = settings(max_examples=draws(25, nightly=200))
lengths = st.integers(2, 9)
with_decoder = configs(family="encoder-decoder") | configs(family="decoder")


@drawn_often
@given(config=with_decoder, length=lengths, data=st.data())
def test_future_tokens_cannot_change_past_logits(config: ModelConfig, length: int, data):
    model = random_model(config, dtype=torch.float32)
    past = data.draw(st.integers(1, length - 1))
    one = random_tokens(config, 2, length, seed=1, target=True)
    other = random_tokens(config, 2, length, seed=2, target=True)
    other[:, :past] = one[:, :past]
    assert torch.equal(run(model, one)[:, :past], run(model, other)[:, :past])


@drawn_often
@given(config=configs(), n_pads=st.integers(0, 8), n_target_pads=st.integers(0, 8), data=st.data())
def test_padding_on_either_side_changes_nothing(
    config: ModelConfig, n_pads: int, n_target_pads: int, data
):
    model = first_model(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(0, 0.02)
    left = data.draw(st.booleans())

    def pad(tokens: torch.Tensor, n: int) -> torch.Tensor:
        pads = torch.full((len(tokens), n), config.pad_id)
        return torch.cat((pads, tokens) if left else (tokens, pads), dim=1)

    source = random_tokens(config, 2, 6, seed=1)
    tokens = random_tokens(config, 2, 5, seed=2, target=True)
    padded = run(model, pad(tokens, n_target_pads), pad(source, n_pads))
    real = padded
    if not config.labels:
        real = padded[:, n_target_pads:] if left else padded[:, :5]
    assert (real - run(model, tokens, source)).abs().max() <= 1e-6


@drawn_often
@given(config=configs(), left=st.booleans(), data=st.data())
def test_nan_in_padding_slots_does_not_leak(config: ModelConfig, left: bool, data):
    model = random_model(config)
    tables = [model.tokens] + ([model.target_table] if isinstance(model, Seq2Seq) else [])
    source = random_tokens(config, 2, 6, seed=1)
    tokens = random_tokens(config, 2, 5, seed=2, target=True)
    n_pads = data.draw(st.integers(1, 4))
    for row in (source[0], tokens[1]):  # the other rows have none
        row[slice(None, n_pads) if left else slice(-n_pads, None)] = config.pad_id
    clean = run(model, tokens, source)
    with torch.no_grad():
        for table in tables:
            table.weight[config.pad_id] = torch.nan
    poisoned = run(model, tokens, source)
    if config.labels:
        assert torch.equal(poisoned, clean)
        return
    words = torch.arange(clean.shape[-1]) != config.pad_id  # a tied output has the poisoned row
    real = tokens != config.pad_id
    assert torch.equal(poisoned[real][:, words], clean[real][:, words])


@drawn_often
@given(config=configs(), length=lengths)
def test_a_row_alone_equals_the_row_in_a_batch(config: ModelConfig, length: int):
    model = random_model(config, dtype=torch.float32)
    source = random_tokens(config, 4, 7, seed=1)
    tokens = random_tokens(config, 4, length, seed=2, target=True)
    together = run(model, tokens, source)
    for i in range(4):
        alone = run(model, tokens[i : i + 1], source[i : i + 1])
        torch.testing.assert_close(alone[0], together[i], atol=1e-5, rtol=1e-5)


@drawn_often
@given(
    config=configs(family="encoder", positions="none", labels=False), length=lengths, data=st.data()
)
def test_without_positions_an_encoder_is_permutation_equivariant(
    config: ModelConfig, length: int, data
):
    model = random_model(config)
    tokens = random_tokens(config, 2, length, seed=1)
    order = torch.tensor(data.draw(st.permutations(range(length))))
    torch.testing.assert_close(run(model, tokens[:, order]), run(model, tokens)[:, order])


@drawn_often
@given(
    n_queries=st.integers(1, 9),
    n_more_keys=st.integers(0, 9),
    n_kv_heads=st.integers(1, 3),
    group=st.integers(1, 3),
    causal=st.booleans(),
    masked=st.booleans(),
    biased=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    seed=st.integers(0, 999),
)
def test_fused_attention_equals_the_explicit_formula(
    n_queries, n_more_keys, n_kv_heads, group, causal, masked, biased, dtype, seed
):
    torch.manual_seed(seed)
    n_keys = n_queries + n_more_keys
    queries = torch.randn(2, n_kv_heads * group, n_queries, 8, dtype=dtype, requires_grad=True)
    keys = torch.randn(2, n_kv_heads, n_keys, 8, dtype=dtype, requires_grad=True)
    values = torch.randn(2, n_kv_heads, n_keys, 8, dtype=dtype, requires_grad=True)
    options = {
        "allowed": torch.rand(2, 1, n_queries, n_keys) < 0.7 if masked else None,
        "bias": torch.randn(1, n_kv_heads * group, n_queries, n_keys, dtype=dtype)
        if biased
        else None,
        "causal": causal,
    }
    pull = torch.randn(queries.shape, dtype=dtype) / 8
    outputs, gradients = [], []
    for attention in (explicit_attention, fused_attention):
        output = attention(queries, KeysValues(keys, values), **options)
        outputs.append(output)
        gradients.append(torch.autograd.grad(output, (queries, keys, values), pull))
    tolerance = 1e-6 if dtype is torch.float32 else 1e-12
    for explicit, fused in zip((outputs[0], *gradients[0]), (outputs[1], *gradients[1])):
        scale = max(1.0, explicit.abs().max().item())
        assert (explicit - fused).abs().max() <= tolerance * scale


@drawn_often
@given(config=configs())
def test_a_model_with_the_fused_kernel_equals_one_with_the_formula(config: ModelConfig):
    tokens = random_tokens(config, 3, 6, seed=1, target=True)
    tokens[0, :2] = config.pad_id
    fused, explicit = (
        run(random_model(replace(config, attention=kind)), tokens) for kind in ("fused", "explicit")
    )
    assert (fused - explicit).abs().max() <= 1e-12 * max(1.0, explicit.abs().max().item())


@drawn_often
@given(config=with_decoder, data=st.data())
def test_the_cache_gives_the_logits_of_the_full_pass(config: ModelConfig, data):
    model = random_model(config)
    source = random_tokens(config, 3, 7, seed=1)
    source[1, 5:] = config.pad_id
    tokens = random_tokens(config, 3, 9, seed=2, target=True)
    tokens[2, : data.draw(st.integers(0, 2))] = config.pad_id  # a shorter prompt
    tokens[0, 4] = config.pad_id  # a pause, as when a sequence has ended
    real = tokens != config.pad_id
    full = run(model, tokens, source)
    cuts = sorted(data.draw(st.sets(st.integers(3, 8), max_size=3)))
    cached = _run_in_pieces(model, tokens, source, [0, *cuts, 9])
    assert (cached - full)[real].abs().max() <= 1e-10


@drawn_often
@given(config=with_decoder, rows=st.lists(st.integers(0, 2), min_size=1, max_size=5))
def test_a_reordered_cache_goes_on_with_the_rows_it_was_given(config: ModelConfig, rows):
    model = random_model(config)
    order = torch.tensor(rows)
    source = random_tokens(config, 3, 7, seed=1)
    source[1, :3] = config.pad_id
    past = random_tokens(config, 3, 4, seed=2, target=True)
    past[2, 0] = config.pad_id
    new = random_tokens(config, len(rows), 3, seed=3, target=True)
    full = run(model, torch.cat((past[order], new), dim=1), source[order])[:, 4:]

    step, cache = _cached(model, source, capacity=7)
    step(past)
    cache.reorder(order)
    assert (torch.cat([step(new[:, :1]), step(new[:, 1:])], dim=1) - full).abs().max() <= 1e-10


def _cached(model, source: torch.Tensor, capacity: int):
    if isinstance(model, Seq2Seq):
        cache = model.new_cache(model.encode(source), capacity)
        return (lambda tokens: model.decode(tokens, cache=cache)), cache
    assert isinstance(model, CausalLM)
    cache = model.new_cache(len(source), capacity)
    return (lambda tokens: model(tokens, cache=cache)), cache


def _run_in_pieces(model, tokens: torch.Tensor, source: torch.Tensor, cuts: list[int]):
    step, _ = _cached(model, source, capacity=tokens.shape[1])
    return torch.cat([step(tokens[:, a:b]) for a, b in itertools.pairwise(cuts)], dim=1)


@drawn_often
@given(config=configs(), rows=st.sampled_from([[0], [1], [0, 1]]))
def test_a_sequence_of_nothing_but_padding_is_harmless(config: ModelConfig, rows):
    model = random_model(config)
    source = random_tokens(config, 3, 7, seed=1)
    tokens = random_tokens(config, 3, 5, seed=2, target=True)
    unharmed = run(model, tokens, source)[2]
    source[rows] = config.pad_id
    tokens[rows] = config.pad_id
    logits = run(model, tokens, source)
    logits.sum().backward()
    assert logits.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    torch.testing.assert_close(logits[2], unharmed)


@drawn_often
@given(
    attention=st.sampled_from([explicit_attention, fused_attention]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    n_keys=st.integers(1, 40),
    biased=st.booleans(),
)
def test_a_query_that_may_look_at_nothing_gets_zeros_and_finite_gradients(
    attention, dtype, n_keys, biased
):
    queries = torch.randn(2, 4, 3, 8, dtype=dtype, requires_grad=True)
    keys = torch.randn(2, 2, n_keys, 8, dtype=dtype, requires_grad=True)
    values = torch.randn(2, 2, n_keys, 8, dtype=dtype, requires_grad=True)
    allowed = torch.ones(2, 1, 3, n_keys, dtype=torch.bool)
    allowed[0, :, 1] = False
    bias = torch.randn(1, 4, 3, n_keys, dtype=dtype) if biased else None
    output = attention(queries, KeysValues(keys, values), allowed=allowed, bias=bias)
    output.square().sum().backward()
    assert (output[0, :, 1] == 0).all()
    assert (output[0, :, 0] != 0).any()
    assert all(x.grad.isfinite().all() for x in (queries, keys, values))
    assert (queries.grad[0, :, 1] == 0).all()


@drawn_often
@given(config=configs())
def test_every_parameter_receives_a_gradient(config: ModelConfig):
    model = random_model(config)
    tokens = random_tokens(config, 3, 8, seed=1, target=True)
    run(model, tokens).logsumexp(-1).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        # A bias on all keys moves all scores of a query alike: softmax takes it away again.
        if not name.endswith("key.bias"):
            assert parameter.grad.abs().max() > 0, name


@drawn_often
@given(config=configs(), seed=st.integers(0, 9))
def test_the_first_loss_is_that_of_a_blind_guess(config: ModelConfig, seed: int):
    model = first_model(config, seed)
    tokens = random_tokens(config, 8, 20, seed=seed, target=True)
    logits = run(model, tokens, random_tokens(config, 8, 20, seed=seed + 1))
    targets = random_tokens(config, 8, 20, seed=seed + 2, target=True)
    if config.labels:
        targets = torch.arange(8) % len(config.labels)
    loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.flatten()).item()
    n_guesses = len(config.labels) or config.output_vocab_size
    assert loss == pytest.approx(math.log(n_guesses), rel=0.05)


@drawn_often
@given(config=configs())
def test_tied_weights_stay_one_tensor_after_load_copy_and_move(config: ModelConfig):
    assume(config.tie_output and not config.labels)
    model = random_model(config, seed=1)
    loaded = random_model(config, seed=2)
    loaded.load_state_dict(model.state_dict())
    moved = build_model(config, device="meta").to_empty(device="cpu").to(torch.float64)
    moved.load_state_dict(model.state_dict())
    for copied in (loaded, copy.deepcopy(model), model.to(torch.float32), moved):
        table = copied.target_table if isinstance(copied, Seq2Seq) else copied.tokens
        tensors = [p for p in copied.parameters() if p.shape == table.weight.shape]
        separate = isinstance(copied, Seq2Seq) and config.target_vocab_size == config.vocab_size
        assert len(tensors) == (2 if separate else 1)
        assert table.weight.shape[0] == config.output_vocab_size
        # The proof that input and output are one: an output row changed is an embedding changed.
        with torch.no_grad():
            before = table(torch.tensor([[3]]))
            hidden = torch.ones(1, 1, config.d_model, dtype=before.dtype)
            score = copied.output(hidden, table)[0, 0, 3]
            table.weight[3] += 1
            assert not torch.equal(table(torch.tensor([[3]])), before)
            change = copied.output(hidden, table)[0, 0, 3] - score
        assert change.item() == pytest.approx(config.d_model, rel=1e-3)


@drawn_often
@given(config=configs(p_dropout=0.9))
def test_evaluation_is_repeatable_whatever_the_dropout(config: ModelConfig):
    model = random_model(config, dtype=torch.float32)
    tokens = random_tokens(config, 2, 6, target=True)
    once = run(model, tokens)
    assert torch.equal(run(model, tokens), once)
    model.train()
    assert not torch.equal(run(model, tokens), once)


@drawn_often
@given(config=configs(), seed=st.integers(0, 99))
def test_a_model_built_without_memory_equals_one_built_directly(config: ModelConfig, seed: int):
    direct = first_model(config, seed)
    through_meta = build_model(config, seed=seed)
    for (name, one), (_, other) in zip(
        [*direct.named_parameters(), *direct.named_buffers()],
        [*through_meta.named_parameters(), *through_meta.named_buffers()],
        strict=True,
    ):
        assert torch.equal(one, other), name


@drawn_often
@given(config=configs(p_dropout=0.3), training=st.booleans(), data=st.data())
def test_recording_changes_no_bit_of_the_logits(config: ModelConfig, training: bool, data):
    model = random_model(config, dtype=torch.float32).train(training)
    tokens = random_tokens(config, 2, 5, seed=1, target=True)
    tokens[0, 0] = config.pad_id
    layers = data.draw(st.none() | st.sets(st.integers(0, 1)))
    recorder = Recorder(layers)
    torch.manual_seed(0)
    silent = run(model, tokens)
    torch.manual_seed(0)
    assert torch.equal(run(model, tokens, recorder=recorder), silent)

    roles = {"encoder-decoder": {"self", "causal", "cross"}, "decoder": {"causal"}}
    for (role, layer), weights in ((place, recorder[place]) for place in recorder.steps):
        assert role in roles.get(config.family, {"self"})
        assert layers is None or layer in layers
        assert weights.shape[:2] == (2, config.n_heads)
        sums = weights.sum(-1)
        empty = (weights == 0).all(-1)
        torch.testing.assert_close(sums[~empty], torch.ones_like(sums[~empty]))
        assert not empty[1].any(), "only padding may look at nothing"
    if layers is None or 0 in layers:
        assert {role for role, _ in recorder.steps} == roles.get(config.family, {"self"})
