"""One rank of thousands: torch's fake backend stands for the other ranks, fake tensors for memory,
and all else is the code that trains. It counts and weighs; it cannot time."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from clearhead.config import ModelConfig, TrainConfig
from clearhead.data.batches import TokenBatch
from clearhead.models import build_model
from clearhead.scale.memory import RankLayout, gathered_once
from clearhead.scale.operations import with_layers
from clearhead.training.distributed import (
    Meshes,
    Ranks,
    make_meshes,
    recompute_layers,
    shard,
    sharded_objective,
)
from clearhead.training.plan import local_bytes


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """What the first rank holds, and what it sends in one forward and backward pass."""

    weights: int
    """Bytes."""
    gradients: int
    collectives: dict[str, int]
    """How often each kind is called."""


def simulate(
    model: ModelConfig, train: TrainConfig, layout: RankLayout, *, length: int
) -> Simulated:
    """A whole decoder from two small ones: the model is built with one and with two layers, and
    every further layer adds the same."""
    once = gathered_once(model, train, layout)
    one, two = (
        simulate_whole(with_layers(model, depth), train, layout, length=length, once=once)
        for depth in (1, 2)
    )
    more = model.n_layers - 1
    return Simulated(
        weights=one.weights + more * (two.weights - one.weights),
        gradients=one.gradients + more * (two.gradients - one.gradients),
        collectives={
            name: one.collectives[name] + more * (count - one.collectives[name])
            for name, count in two.collectives.items()
        },
    )


class _Collectives(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if DTensor in types:  # what it does to this rank's share comes by next
            return NotImplemented
        if func.namespace in ("c10d", "_c10d_functional") and func._opname != "wait_tensor":
            self.counts[func._opname] += 1
        return func(*args, **(kwargs or {}))


def simulate_whole(
    model: ModelConfig,
    train: TrainConfig,
    layout: RankLayout,
    *,
    length: int,
    once: bool | None = None,
) -> Simulated:
    """With all its layers: minutes for a large model. `once`: whether weights stay gathered; None:
    as this model would."""
    with _fake_meshes(train, layout.ranks) as meshes:
        gathered = gathered_once(model, train, layout) if once is None else once
        whole = build_model(model, device="meta")
        objective = sharded_objective(whole, train, meshes, gathered=gathered)
        if train.recompute:
            recompute_layers(objective)
        shard(objective, train, meshes)
        with FakeTensorMode(allow_non_fake_inputs=True):  # which the weights are until now
            objective.to_empty(device="cpu")
            tokens = torch.zeros(layout.rows, length, dtype=torch.long)
            batch = TokenBatch(inputs=tokens, targets=tokens, documents=tokens, samples=())
            with _Collectives() as counted:
                objective(batch).backward()
        gradients = [p.grad for p in objective.parameters() if p.grad is not None]
        return Simulated(
            weights=local_bytes(list(objective.parameters())),
            gradients=local_bytes(gradients),
            collectives=dict(counted.counts),
        )


@contextmanager
def _fake_meshes(train: TrainConfig, world: int) -> Iterator[Meshes]:
    """Torch's default group is the fake one meanwhile: not for a process that has another."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
    try:
        ranks = Ranks(0, world, torch.device("cpu"), sharded=True, tensor=train.tensor_parallel)
        yield make_meshes(train, ranks)
    finally:
        dist.destroy_process_group()
