"""Defects that tutorial Transformers have and that run all the same: not here.

Each row is a check that holds for our model, and a planted defect with which the same check
fails: a check that could not fail would prove nothing. Rows that are spelling (names never
defined, imports forgotten, a docstring's indent) are kept out by the linter and the type checker.
"""

import io
import math
import sys
from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from unittest.mock import patch

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearhead.config import ModelConfig, TrainConfig
from clearhead.config import model as config_model
from clearhead.data.batches import IGNORED, TokenBatch
from clearhead.decoding import Choice, DecodeConfig, greedy, sample
from clearhead.decoding import cached as cached_module
from clearhead.decoding import generation as generation_module
from clearhead.errors import ConfigError, InputError
from clearhead.models import ParameterCount, assemble, causal_lm, count_parameters, preset
from clearhead.models import build_model as build
from clearhead.models import initialise as initialise_module
from clearhead.models.seq2seq import Seq2Seq
from clearhead.parts import attention, masks
from clearhead.parts.attention import MultiHeadAttention
from clearhead.parts.cache import Cache
from clearhead.parts.embeddings import InputEmbedding, TokenEmbedding
from clearhead.parts.norm import LayerNorm
from clearhead.parts.positions import LearnedPositions, sinusoid
from clearhead.parts.recorder import Recorder
from clearhead.parts.residual import Residual
from clearhead.parts.view import View
from clearhead.stacks.decoder import DecoderLayer
from clearhead.stacks.encoder import EncoderLayer
from clearhead.training.distributed import Ranks
from clearhead.training.loss import Objective, SummedLoss, cross_entropy
from clearhead.training.step import take_step

THIS = sys.modules[__name__]
SEQ2SEQ = replace(preset("tiny-encoder-decoder"), p_dropout=0.0)
DECODER = replace(preset("tiny-decoder"), p_dropout=0.0)
ENCODER = replace(preset("tiny-encoder"), p_dropout=0.0)


def tokens(rows: int, length: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, 64, (rows, length), generator=generator)


# ── the checks ──────────────────────────────────────────────────────────────────────────────────


def zeroed_sublayers_leave_the_stream_alone() -> None:
    model = build(SEQ2SEQ)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.weight)
    layer = model.encoder.layers[0]
    x = torch.randn(2, 5, SEQ2SEQ.d_model)
    assert torch.equal(layer(x, View()), x)


def source_and_target_may_differ_in_length() -> None:
    model = build(SEQ2SEQ)
    for source, target in ((7, 5), (5, 7), (1, 6), (6, 1)):
        assert model(tokens(2, source), tokens(2, target)).shape == (2, target, 64)


def random_targets_cannot_be_learnt_below_their_entropy() -> None:
    """On fresh random tokens a model that sees only the past stays at ln 16; one whose targets
    leak goes far below."""
    model = build(replace(SEQ2SEQ, vocab_size=19, n_layers=1, init_std=0.2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        source = torch.randint(3, 19, (32, 8), generator=generator)
        target = torch.randint(3, 19, (32, 9), generator=generator)
        logits = model(source, target[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() > math.log(16) - 0.1


def parameters_are_counted_for_every_kind_of_position() -> None:
    for positions in ("sinusoidal", "learned", "rotary", "alibi", "none"):
        model = build(replace(DECODER, positions=positions))
        table = sum(p.numel() for p in model.embedding.parameters())
        count = count_parameters(model)
        assert count.total - count.without_embeddings == model.tokens.weight.numel() + table


def padding_changes_nothing() -> None:
    model = build(SEQ2SEQ).eval()
    source, target = tokens(1, 5), tokens(1, 4)
    padded = F.pad(source, (0, 3))
    torch.testing.assert_close(model(padded, target), model(source, target), atol=1e-6, rtol=0)


def embedding_dropout_is_applied_once() -> None:
    model = build(replace(DECODER, p_dropout=0.1, d_model=512, n_heads=8, positions="none"))
    model.train()
    seen = []
    model.decoder.layers[0].register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    model(tokens(8, 60))
    assert (seen[0] == 0).float().mean().item() == pytest.approx(0.1, abs=0.01)


def tokens_are_as_loud_as_positions() -> None:
    model = build(replace(preset("paper-base"), vocab_size=100, n_layers=1))
    token = model.tokens(torch.arange(3, 100)[None]).norm(dim=-1).mean()
    position = model.embedding.positions(torch.arange(50)[None]).norm(dim=-1).mean()
    assert 0.3 < token / position < 3


def generation_is_repeatable_and_restores_the_mode() -> None:
    model = build(replace(SEQ2SEQ, p_dropout=0.5)).train()
    config, choice = DecodeConfig(max_new=6, eos_id=None), Choice(top_k=1)
    outputs = [sample(model, tokens(2, 4), config, choice) for _ in range(6)]
    assert all(output == outputs[0] for output in outputs)
    assert model.training


def temperature_zero_is_greedy_and_top_k_zero_is_refused() -> None:
    model = build(DECODER)
    config, prompts = DecodeConfig(max_new=4, eos_id=None), tokens(2, 4)
    assert sample(model, prompts, config, Choice(temperature=0)) == greedy(model, prompts, config)
    with pytest.raises(ConfigError, match="top_k=0 must be at least 1; use None"):
        Choice(top_k=0)


def translation_encodes_once_and_stops_at_the_end() -> None:
    model = build(SEQ2SEQ)
    calls = []
    model.encoder.register_forward_hook(lambda *_: calls.append(1))
    script = iter([5, 2, 7, 7, 7, 7])  # the second token is the end
    with patch.object(generation_module, "argmax", lambda scores: [next(script)] * len(scores)):
        outputs = greedy(model, tokens(3, 6), DecodeConfig(max_new=6, eos_id=2))
    assert [output.tokens for output in outputs] == [[5, 2]] * 3
    assert len(calls) == 1


def nothing_is_printed() -> None:
    with redirect_stdout(io.StringIO()) as out:
        build(SEQ2SEQ)(tokens(2, 5), tokens(2, 4))
    assert out.getvalue() == ""


def an_odd_width_is_refused_in_words() -> None:
    with pytest.raises(ConfigError, match=r"d_model=33 must be even .* try d_model=34"):
        ModelConfig(d_model=33, n_heads=3)


def a_layer_norm_can_do_without_its_bias() -> None:
    model = build(replace(DECODER, bias=False))
    assert not [name for name, _ in model.named_parameters() if name.endswith("bias")]


def the_worked_sinusoid_has_one_base() -> None:
    assert sinusoid(4, 4, pairs="interleaved")[3].tolist() == pytest.approx(
        [math.sin(3), math.cos(3), math.sin(0.03), math.cos(0.03)], abs=1e-6
    )


def scaled_initialisation_reaches_both_residual_outputs() -> None:
    model = build(replace(DECODER, d_model=256, d_ff=512, n_heads=4, n_layers=4))
    for layer in model.decoder.layers:
        for writer in (layer.self_attention.output, layer.feed_forward.down):
            assert writer.weight.std().item() == pytest.approx(0.02 / math.sqrt(8), rel=0.05)


def generation_beyond_the_limit_is_refused_in_words() -> None:
    for positions in ("learned", "none"):
        model = build(replace(DECODER, positions=positions, max_length=8))
        with pytest.raises(InputError, match=r"make 9 tokens, more than max_length=8"):
            greedy(model, tokens(1, 6), DecodeConfig(max_new=3))
        with pytest.raises(InputError, match=r"9 tokens are more than max_length=8"):
            model(tokens(1, 9))


def absent_positions_own_no_parameter() -> None:
    model = build(replace(DECODER, positions="none"))
    model(tokens(2, 5)).logsumexp(-1).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def a_flag_is_true_or_false() -> None:
    with pytest.raises(ConfigError, match="residual=0 must be true or false"):
        ModelConfig(residual=0)  # pyright: ignore


def recorded_weights_sum_to_one_in_training() -> None:
    model = build(replace(SEQ2SEQ, p_dropout=0.5, p_attention_dropout=0.5)).train()
    recorder = Recorder()
    model(tokens(2, 7), tokens(2, 5), recorder=recorder)
    assert len(recorder.steps) == 6
    for (weights,) in recorder.steps.values():
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))


def no_target_left_is_a_loss_of_zero() -> None:
    logits = torch.randn(2, 3, 7, requires_grad=True)
    nats, n_targets = cross_entropy(logits, torch.zeros(2, 3, dtype=torch.long), ignore_id=0)
    nats.backward()
    assert (nats.item(), n_targets.item()) == (0, 0)
    assert (logits.grad == 0).all()


def a_batch_stays_a_batch() -> None:
    model = build(DECODER)
    assert model(tokens(1, 1)).shape == (1, 1, 64)
    assert model(tokens(1, 1), recorder=Recorder()).shape == (1, 1, 64)
    assert len(greedy(model, tokens(1, 1), DecodeConfig(max_new=1))) == 1


def the_context_is_used() -> None:
    for config in (DECODER, ENCODER):
        model = build(config).eval()
        one, other = tokens(1, 8), tokens(1, 8)
        other[0, 0] = 3 + (one[0, 0] - 2) % 61
        changed = (model(one) != model(other)).any(-1)[0]
        assert changed.all()
    model = build(SEQ2SEQ)
    model(tokens(2, 5), tokens(2, 4)).logsumexp(-1).sum().backward()
    assert all(p.grad is not None for p in model.encoder.parameters())


def the_future_is_hidden() -> None:
    for config in (replace(DECODER, p_attention_dropout=0.1), DECODER):
        model = build(config).train()
        one, other = tokens(1, 8), tokens(1, 8)
        other[0, 5:] = tokens(1, 3, seed=1)
        logits = []
        for sequence in (one, other):
            torch.manual_seed(0)
            logits.append(model(sequence)[:, :5])
        assert torch.equal(*logits)


def a_reordered_cache_follows_its_rows() -> None:
    model = build(replace(DECODER, init_std=0.3)).eval()
    sequence, order = tokens(2, 6), torch.tensor([1, 0])
    cache = model.new_cache(2)
    model(sequence[:, :5], cache=cache)
    cache.reorder(order)
    again = model(sequence[order][:, 5:], cache=cache)
    torch.testing.assert_close(again[:, 0], model(sequence)[order][:, 5], atol=1e-5, rtol=1e-5)


def one_new_query_sees_every_cached_key() -> None:
    model = build(DECODER).eval()
    sequence = tokens(2, 6)
    cache = model.new_cache(2)
    model(sequence[:, :5], cache=cache)
    recorder = Recorder()
    model(sequence[:, 5:], cache=cache, recorder=recorder)
    assert (recorder["causal", 0] > 0).all()
    assert recorder["causal", 0].shape[-2:] == (1, 6)


def micro_batches_give_the_gradient_of_the_whole_batch() -> None:
    objective = Objective(build(DECODER).double(), TrainConfig())
    batch = tokens(4, 9)
    targets = batch[:, 1:].clone()
    targets[0, 4:] = targets[1, 3:] = IGNORED  # rows of very different numbers of targets
    whole = TokenBatch(
        inputs=batch[:, :-1], targets=targets, documents=batch[:, :-1], samples=((0,),) * 4
    )

    def gradient(micro_batches: int) -> torch.Tensor:
        """What an optimizer that moves by the gradient itself subtracts from the weights."""
        start = [p.detach().clone() for p in objective.parameters()]
        descent = torch.optim.SGD(objective.parameters(), lr=1.0)
        take_step(objective, [descent], whole, ranks=Ranks(), lr=1.0, micro_batches=micro_batches)
        with torch.no_grad():
            moved = [(was - now).flatten() for was, now in zip(start, objective.parameters())]
            for parameter, was in zip(objective.parameters(), start):
                parameter.copy_(was)
        return torch.cat(moved)

    torch.testing.assert_close(gradient(4), gradient(1))


# ── the defects ─────────────────────────────────────────────────────────────────────────────────

attend = MultiHeadAttention.forward
embed = InputEmbedding.forward
translate_forward = Seq2Seq.forward
encode_layer = EncoderLayer.forward
weights_before_dropout = attention.attention_weights
embedding_of = assemble._input_embedding
attention_of = assemble._attention
causal_forward = causal_lm.CausalLM.forward
nats_of = Objective.forward


def residual_taken_after_the_norm(self, x, sublayer):
    x = self.norm(x)
    return x + self.dropout(sublayer(x))


def keys_reshaped_with_the_querys_length(self, x, seen, view, record=None):
    keys, values = (t.reshape(*t.shape[:2], x.shape[1], self.d_head) for t in seen)
    return attend(self, x, type(seen)(keys, values), view, record)


def one_sequence_for_both_towers(self, source, target, **options):
    return translate_forward(self, target, target)


def count_less_a_table_that_may_not_exist(model):
    total = sum(p.numel() for p in model.parameters())
    return ParameterCount(total, total - model.embedding.positions.weight.numel())


def dropout_applied_twice(self, tokens, positions, real, segments=None):
    return self.dropout(embed(self, tokens, positions, real, segments))


def unscaled(self, tokens):
    return F.embedding(tokens, self.weight)


def no_stop(self, text):
    return "length" if len(text.new) == self.config.max_new else None


def talkative(self, x, *rest):
    print(x.shape)
    return encode_layer(self, x, *rest)


def norm_with_a_bias(d_model, *, eps, bias):
    return LayerNorm(d_model, eps=eps, bias=True)


def attention_output_only(part):
    return part.output if isinstance(part, MultiHeadAttention) else None


def embedding_with_an_idle_table(config, own):
    embedding = embedding_of(config, own)
    embedding.idle = LearnedPositions(config.max_length, config.d_model)
    return embedding


def weights_after_dropout(*args, **options):
    return F.dropout(weights_before_dropout(*args, **options), 0.5)


def mean_over_no_target(logits, targets, *, ignore_id):
    mean = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=ignore_id)
    return SummedLoss(mean, (targets != ignore_id).sum())


def squeezed(self, tokens, **options):
    return causal_forward(self, tokens, **options).squeeze(0)


def no_attention_at_all(self, x, *rest, **options):
    return self.around_feed_forward(x, self.feed_forward)


def aligned_to_the_top_left(n_queries, n_keys, device=None):
    return torch.ones(n_queries, n_keys, dtype=torch.bool).tril()[None, None]


def averaged_by_batch(self, batch, smooth=True):
    return nats_of(self, batch, smooth) / (batch.targets != IGNORED).sum()


def attention_without_causality(config, own, *, causal):
    return attention_of(config, own, causal=False)


def nothing(*_, **__):
    return None


@dataclass(frozen=True)
class Row:
    number: str
    check: Callable[[], None]
    plant: Callable
    failure: type[BaseException] = AssertionError
    """What the check raises with the defect in place; some defects crash, as they did there."""


ROWS = [
    Row("1", zeroed_sublayers_leave_the_stream_alone,
        lambda: patch.object(Residual, "forward", residual_taken_after_the_norm)),
    Row("2, 9", source_and_target_may_differ_in_length,
        lambda: patch.object(MultiHeadAttention, "forward", keys_reshaped_with_the_querys_length),
        RuntimeError),
    Row("3", random_targets_cannot_be_learnt_below_their_entropy,
        lambda: patch.object(Seq2Seq, "forward", one_sequence_for_both_towers)),
    Row("4", parameters_are_counted_for_every_kind_of_position,
        lambda: patch.object(THIS, "count_parameters", count_less_a_table_that_may_not_exist),
        AttributeError),
    Row("8", padding_changes_nothing, lambda: patch.object(masks, "real_keys", nothing)),
    Row("10", embedding_dropout_is_applied_once,
        lambda: patch.object(InputEmbedding, "forward", dropout_applied_twice)),
    Row("11", tokens_are_as_loud_as_positions,
        lambda: patch.object(TokenEmbedding, "forward", unscaled)),
    Row("12", generation_is_repeatable_and_restores_the_mode,
        lambda: patch.object(cached_module, "evaluating", nullcontext)),
    Row("13", temperature_zero_is_greedy_and_top_k_zero_is_refused,
        lambda: patch.object(Choice, "__post_init__", nothing)),
    Row("14", translation_encodes_once_and_stops_at_the_end,
        lambda: patch.object(generation_module._RunningBatch, "_stop_after", no_stop)),
    Row("15", nothing_is_printed, lambda: patch.object(EncoderLayer, "forward", talkative)),
    Row("16", an_odd_width_is_refused_in_words,
        lambda: patch.object(ModelConfig, "_check_widths", nothing)),
    Row("17", a_layer_norm_can_do_without_its_bias,
        lambda: patch.object(assemble, "LayerNorm", norm_with_a_bias)),
    Row("18", the_worked_sinusoid_has_one_base,
        lambda: patch.object(THIS, "sinusoid", partial(sinusoid, base=100.0))),
    Row("21", scaled_initialisation_reaches_both_residual_outputs,
        lambda: patch.object(initialise_module, "_writer", attention_output_only)),
    Row("22", generation_beyond_the_limit_is_refused_in_words,
        lambda: patch.object(causal_lm, "check_length", nothing), IndexError),
    Row("23", absent_positions_own_no_parameter,
        lambda: patch.object(assemble, "_input_embedding", embedding_with_an_idle_table)),
    Row("24", a_flag_is_true_or_false,
        lambda: patch.object(config_model, "check_choices", nothing)),
    Row("25", recorded_weights_sum_to_one_in_training,
        lambda: patch.object(attention, "attention_weights", weights_after_dropout)),
    Row("26", no_target_left_is_a_loss_of_zero,
        lambda: patch.object(THIS, "cross_entropy", mean_over_no_target)),
    Row("27", a_batch_stays_a_batch,
        lambda: patch.object(causal_lm.CausalLM, "forward", squeezed)),
    Row("28", the_context_is_used,
        lambda: patch.multiple(DecoderLayer, forward=no_attention_at_all)),
    Row("29", one_new_query_sees_every_cached_key,
        lambda: patch.object(masks, "causal", aligned_to_the_top_left)),
    Row("29, without a cache", the_future_is_hidden,
        lambda: patch.object(assemble, "_attention", attention_without_causality)),
    Row("30", a_reordered_cache_follows_its_rows,
        lambda: patch.object(Cache, "reorder", nothing)),
    Row("31", micro_batches_give_the_gradient_of_the_whole_batch,
        lambda: patch.object(Objective, "forward", averaged_by_batch)),
]  # fmt: skip
each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: f"row {row.number}")


@each_row
def test_the_defect_is_absent(row: Row):
    row.check()


@each_row
def test_the_check_fails_when_the_defect_is_planted(row: Row):
    with row.plant(), pytest.raises((row.failure, pytest.fail.Exception)):
        row.check()
