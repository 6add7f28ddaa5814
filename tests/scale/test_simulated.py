"""Plans built on ranks that are not there."""

from dataclasses import replace

import pytest

from clearhead.config import TrainConfig
from clearhead.models import preset
from clearhead.scale import plan
from clearhead.scale.memory import RankLayout, rank_memory
from tests.scale.one_rank import simulate, simulate_whole

FSDP = TrainConfig(parallel="fsdp", precision="bf16")


def test_two_small_models_count_the_collectives_of_the_whole():
    model, layout = replace(preset("tiny-decoder"), n_layers=5), RankLayout(shard=8)
    assert simulate(model, FSDP, layout, length=16) == simulate_whole(
        model, FSDP, layout, length=16
    )


@pytest.mark.parametrize(("limit", "passes"), [(2**26, 1), (0, 2)])
def test_layers_of_a_small_model_are_gathered_once_for_each_step(limit, passes, monkeypatch):
    monkeypatch.setattr("clearhead.training.distributed.KEEP_GATHERED", limit)
    model = preset("tiny-decoder")
    found = simulate(model, FSDP, RankLayout(shard=8), length=16)
    assert found.collectives["_allgather_base_"] == passes * model.n_layers + 1
    assert found.collectives["_reduce_scatter_base_"] == model.n_layers + 1


def test_replicas_also_reduce_between_each_other():
    train = TrainConfig(parallel="fsdp", precision="bf16", replicas=2)
    found = simulate(preset("tiny-decoder"), train, RankLayout(replicas=2, shard=4), length=16)
    assert found.collectives["allreduce_"] == preset("tiny-decoder").n_layers + 1


@pytest.mark.parametrize("recompute", [False, True])
def test_tensor_parallel_ranks_hold_what_is_planned_and_sum_once_for_each_sublayer(recompute):
    """In the forward and in the backward pass, and in the one that recomputes; and the embedding,
    the loss and the gradient of the last layer, once each."""
    model = preset("tiny-decoder")
    layout = RankLayout(replicas=2, shard=4, tensor=2, recompute=recompute)
    train = replace(FSDP, replicas=2, tensor_parallel=2, recompute=recompute)
    found, planned = (
        simulate(model, train, layout, length=16),
        rank_memory(model, train, layout, length=16),
    )
    assert found.weights == planned.weights
    assert found.gradients == planned.at_end.gradients
    assert found.collectives["all_reduce"] == (3 if recompute else 2) * 2 * model.n_layers + 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "world", "kind"),
    [("llama-3-70b", 1024, "H100"), ("llama-3.1-405b", 16_384, "H200")],
)
def test_a_planned_layout_that_fits_is_built_on_thousands_of_ranks(
    name: str, world: int, kind: str
):
    """One sequence on each rank, and the smallest groups that fit: torch makes a tensor for each
    rank of a group, and a group of 16,384 took more than ten minutes. A layer is gathered forward
    and backward and reduces once; the root does both once."""
    model = preset(name)
    found = plan(model, gpus=world, kind=kind, tokens=15e12, batch_tokens=world * 8192)
    fitting = [each.layout for each in found.candidates if each.fits and each.layout.tensor == 1]
    layout = min(fitting, key=lambda each: each.shard)
    assert layout.sharded and layout.ranks == world
    train = TrainConfig(
        parallel="fsdp",
        precision="bf16",
        loss_chunk=1024,
        replicas=layout.replicas,
        recompute=layout.recompute,
    )
    simulated = simulate(model, train, layout, length=8192)
    memory = rank_memory(model, train, layout, length=8192)
    assert simulated.weights == memory.weights
    assert simulated.gradients == memory.at_end.gradients
    assert simulated.collectives["_allgather_base_"] == 2 * model.n_layers + 1
    assert simulated.collectives["_reduce_scatter_base_"] == model.n_layers + 1


@pytest.mark.slow
def test_405_billion_parameters_on_80_gb_need_tensor_parallel_and_are_built_with_it():
    """16 million tokens a step: one sequence for each group of 8."""
    world, model = 16_384, preset("llama-3.1-405b")
    rows = world // 8
    found = plan(model, gpus=world, kind="H100", tokens=15e12, batch_tokens=rows * 8192)
    fitting = [each.layout for each in found.candidates if each.fits]
    layout = min(fitting, key=lambda each: each.shard)
    assert {each.tensor for each in fitting} == {8} and layout.ranks == world
    train = replace(
        FSDP,
        loss_chunk=1024,
        replicas=layout.replicas,
        tensor_parallel=layout.tensor,
        recompute=layout.recompute,
    )
    simulated = simulate(model, train, layout, length=8192)
    memory = rank_memory(model, train, layout, length=8192)
    assert simulated.weights == memory.weights
    assert simulated.gradients == memory.at_end.gradients
    assert simulated.collectives["_allgather_base_"] == 2 * model.n_layers + 1
    # Recomputing a layer stops before its last sum, which nothing needs where there is no dropout.
    # Each of the 8 pieces of the loss is summed twice, and its gradient once.
    assert simulated.collectives["all_reduce"] == 5 * model.n_layers + 1 + 3 * 8
