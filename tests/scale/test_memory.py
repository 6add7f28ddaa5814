"""What a rank holds: kinds, moments, and the traced activations."""

from dataclasses import replace

import pytest
import torch

from clearhead.config import ModelConfig, TrainConfig
from clearhead.data.batches import TokenBatch
from clearhead.models import build_model, preset
from clearhead.scale.activations import activations
from clearhead.scale.memory import RankLayout, rank_memory
from clearhead.scale.operations import inventory
from clearhead.training.loss import Objective

MODEL = ModelConfig(
    family="decoder", vocab_size=96, d_model=32, n_layers=5, n_heads=4, d_ff=80, p_dropout=0.0
)
TRAIN = TrainConfig()


def saved_bytes(model: ModelConfig, rows: int, length: int) -> int:
    """What autograd keeps of a real forward pass: every storage once, weights apart."""
    objective = Objective(build_model(model), TRAIN)
    weights = {p.untyped_storage().data_ptr() for p in objective.parameters()}
    weights |= {b.untyped_storage().data_ptr() for b in objective.buffers()}
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    tokens = torch.ones(rows, length, dtype=torch.long)
    batch = TokenBatch(inputs=tokens, targets=tokens, documents=tokens, samples=())
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = objective(batch)
    assert loss.requires_grad
    return sum(kept.values())


@pytest.mark.parametrize("changes", [{}, {"feed_forward": "swiglu", "norm": "rms"}])
def test_traced_activations_are_those_that_autograd_keeps(changes):
    model = replace(MODEL, **changes)
    per_layer = activations(model, TRAIN, rows=3, length=40, sharded=False).per_layer
    real = [saved_bytes(replace(model, n_layers=n), 3, 40) for n in (2, 4)]
    assert per_layer == pytest.approx((real[1] - real[0]) / 2, rel=0.03)


def test_rows_between_traced_ones_lie_on_a_line():
    found = [activations(MODEL, TRAIN, rows=r, length=24, sharded=False) for r in (1, 2, 5)]
    steps = [each.per_layer for each in found]
    assert steps[2] == pytest.approx(steps[0] + 4 * (steps[1] - steps[0]))


def test_recompute_keeps_only_the_stream_of_each_layer():
    kept = activations(MODEL, replace(TRAIN, recompute=True), rows=3, length=40, sharded=False)
    assert kept.per_layer == 4 * 3 * 40 * MODEL.d_model


@pytest.mark.slow
def test_a_long_text_is_not_traced_and_takes_what_a_trace_finds(monkeypatch):
    model = replace(MODEL, positions="rotary", max_length=192)
    train = replace(TRAIN, loss_chunk=16)
    sizes = {"rows": 3, "length": 192, "sharded": False}
    traced = activations(model, train, **sizes)
    monkeypatch.setattr("clearhead.scale.activations.LONGEST", 64)
    assert vars(activations(model, train, **sizes)) == pytest.approx(vars(traced), rel=0.03)


def test_sharding_divides_what_is_held_and_not_the_activations():
    one = rank_memory(MODEL, TRAIN, RankLayout(), length=24)
    eight = rank_memory(MODEL, TRAIN, RankLayout(shard=8), length=24)
    assert one.weights == 4 * inventory(MODEL).total
    assert one.optimizer == 2 * one.weights
    assert eight.weights == pytest.approx(one.weights / 8, rel=0.02)
    assert eight.at_loss.activations == one.at_loss.activations
    assert all(moment.communication == 0 for moment in one.moments)
    assert all(moment.communication > 0 for moment in eight.moments)


def test_several_micro_batches_of_fsdp_keep_whole_gradients():
    whole = 4 * inventory(MODEL).total
    found = rank_memory(MODEL, TRAIN, RankLayout(shard=8, micro_batches=2), length=24)
    assert {moment.gradients for moment in found.moments} == {whole}
    alone = rank_memory(MODEL, TRAIN, RankLayout(shard=8), length=24)
    assert alone.at_loss.gradients == 0 < alone.at_end.gradients < whole / 7


def test_copies_exchange_through_buckets_of_the_size_of_their_gradients():
    found = rank_memory(MODEL, TRAIN, RankLayout(replicas=2), length=24)
    assert {moment.communication for moment in found.moments} == {4 * inventory(MODEL).total}


def test_torchtitans_selective_recompute_lies_between_all_and_none():
    model, train = preset("llama-3-8b"), TrainConfig(precision="bf16")
    without, full = (
        rank_memory(model, train, RankLayout(shard=8, rows=2, recompute=again), length=8192).peak
        for again in (False, True)
    )
    assert full / 2**30 < 82.4 < without / 2**30
