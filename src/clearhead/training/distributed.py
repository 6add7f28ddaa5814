"""Ranks, devices and sharding, which no other file knows about. torchrun starts the processes, and
torch does the work (DistributedDataParallel, `fully_shard`). A single process runs the same code
without a process group."""

import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from clearhead.config.model import ModelConfig
from clearhead.config.train import TrainConfig
from clearhead.environment import torchrun
from clearhead.errors import ClearheadError, ConfigError
from clearhead.models import Model, build_model
from clearhead.models.initialise import fill_tables, initial_weights, materialise
from clearhead.models.own_parts import NONE, OwnParts
from clearhead.stacks.decoder import DecoderLayer
from clearhead.stacks.encoder import EncoderLayer
from clearhead.training.loss import HALF, Objective, cross_entropy
from clearhead.training.rendezvous import BACKENDS, agree_on_a_start, device_of
from clearhead.training.tensor_parallel import check_divisible, divide, loss_of_shares

# The errors of torch's collectives if another rank is missing.
WAITED_IN_VAIN = re.compile(r"time[d ]*out|connection (closed|reset|refused)|broken pipe", re.I)

KEEP_GATHERED = 2**26
"""The highest number of bytes of sharded weights, in all layers together, that stay gathered from
the first forward pass of a step to its last backward pass. Such weights are sent once in a step,
not for each pass."""


@dataclass(frozen=True)
class Ranks:
    """This process's place among the processes that train together."""

    rank: int = 0
    world: int = 1
    device: torch.device = torch.device("cpu")  # noqa: RUF009 (immutable)
    sharded: bool = False
    """True if each holds only a share of the model."""
    tensor: int = 1
    """Neighbouring ranks that work on the same samples (tensor parallel)."""
    timeout: timedelta | None = None
    """How long a rank waits for the others; None: as long as torch does."""
    restarted: bool = False
    """True if torchrun has started the ranks again after a failure."""

    @property
    def data_rank(self) -> int:
        """The number of this rank among those that work on different samples."""
        return self.rank // self.tensor

    @property
    def data_world(self) -> int:
        """The number of shares into which the samples of a step are split."""
        return self.world // self.tensor

    @property
    def first(self) -> bool:
        """Tell whether this is rank 0, which logs and writes the files."""
        return self.rank == 0

    def total(self, value: int | float | torch.Tensor) -> torch.Tensor:
        """Sum over all shares of the samples, on all ranks."""
        tensor = torch.as_tensor(value, dtype=widest(self.device), device=self.device)
        if self.world > 1:
            tensor = tensor.clone()
            dist.all_reduce(tensor)
        return tensor / self.tensor

    def count(self, n: int) -> int:
        """Sum numbers that the host has counted. They are not sent to the device: gloo sums them,
        and reports a missing rank where NCCL would end the process."""
        if self.world == 1:
            return n
        tensor = torch.tensor(n)
        dist.all_reduce(tensor)
        return int(tensor) // self.tensor

    def any(self, flag: bool) -> bool:
        """Tell whether the condition holds on any rank, which decides what all ranks must do
        together. The host knows the condition, so no process waits for its device."""
        if self.world == 1:
            return flag
        tensor = torch.tensor(int(flag))
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
        return bool(tensor)

    def gather(self, value: Any) -> list[Any]:
        """Return every rank's value, on all ranks."""
        if self.world == 1:
            return [value]
        values: list[Any] = [None] * self.world
        dist.all_gather_object(values, value)
        return values

    def exchange_gradients(
        self, objective: nn.Module, *, now: bool
    ) -> AbstractContextManager[None]:
        """Exchange gradients only after the last micro-batch; until then, each rank sums its
        own."""
        if isinstance(objective, DistributedDataParallel) and not now:
            return objective.no_sync()
        if isinstance(objective, FSDPModule):
            objective.set_requires_gradient_sync(now)
            objective.set_reshard_after_backward(now or not objective_of(objective).stays_gathered)
        return nullcontext()

    def beat(self, step: int) -> None:
        """Record that this rank has reached a step. After a timeout, `name_the_stuck` finds the
        missing rank in these records."""
        if self.world > 1:
            seen = f"{step} {time.time():.0f} {socket.gethostname()} {os.getpid()}"
            _store().set(f"clearhead/beat/{self.rank}", seen)


def widest(device: torch.device) -> torch.dtype:
    """Return the dtype for long sums: Apple's GPUs have no float64."""
    return torch.float32 if device.type == "mps" else torch.float64


@contextmanager
def joined_ranks(config: TrainConfig) -> Iterator[Ranks]:
    """Join the ranks of this run. There is one process unless torchrun started it."""
    launched = torchrun()
    kind = torch.accelerator.current_accelerator(check_available=True)
    kind = "cpu" if kind is None else kind.type
    if launched is None or launched.world == 1:
        check_alone(config)
        yield Ranks(
            device=torch.device(kind), restarted=launched is not None and launched.attempt > 0
        )
        return
    device = device_of(launched.local_rank, kind)
    if device.type != "cpu":
        torch.accelerator.set_device_index(device)
    timeout = timedelta(minutes=config.timeout_minutes)
    store, _, _ = next(dist.rendezvous("env://", timeout=timeout))
    dist.init_process_group(
        BACKENDS[device.type],
        store=dist.PrefixStore(
            agree_on_a_start(store, launched.rank, launched.world, timeout), store
        ),
        rank=launched.rank,
        world_size=launched.world,
        timeout=timeout,
    )
    sharded = config.parallel == "fsdp"
    ranks = Ranks(launched.rank, launched.world, device, sharded, config.tensor_parallel, timeout)
    try:
        # Each machine's torchrun counts only its own restarts.
        yield replace(ranks, restarted=ranks.any(launched.attempt > 0))
    except RuntimeError as error:
        if WAITED_IN_VAIN.search(str(error)) and (stuck := name_the_stuck(ranks)):
            raise ClearheadError(f"rank {ranks.rank} {stuck}") from error
        raise
    finally:
        dist.destroy_process_group()


def check_alone(config: TrainConfig) -> None:
    """Raises for settings that one process cannot carry out."""
    together = config.tensor_parallel * config.replicas
    for name in ("tensor_parallel", "replicas"):
        if getattr(config, name) > 1:
            rule = f"needs at least {together} processes, but this is one"
            command = f"PYTHONSAFEPATH=1 torchrun --nproc-per-node {together} -m clearhead …"
            remedy = f"start them: {command}, or try {name}=1"
            raise ConfigError(f"train.{name}", getattr(config, name), rule, remedy)


def name_the_stuck(ranks: Ranks) -> str:
    """After a failed collective, name the ranks that have not reached the step at which the others
    wait."""
    beats: dict[int, list[str]] = {}
    for rank in range(ranks.world):
        key = f"clearhead/beat/{rank}"
        try:
            beats[rank] = _store().get(key).decode().split() if _store().check([key]) else []
        except RuntimeError:  # the store is in rank 0, which may be the one that is gone
            return "the process of rank 0 is gone"
    steps = {rank: int(beat[0]) if beat else 0 for rank, beat in beats.items()}
    here = steps[ranks.rank]
    behind = [rank for rank, step in steps.items() if rank != ranks.rank and step < here]
    silent = behind or [rank for rank in steps if rank != ranks.rank and steps[rank] == here]
    named = [
        f"rank {rank} ({'process ' + beat[3] + ' on ' + beat[2] if beat else 'unknown'}, "
        f"last seen at step {steps[rank]}, {time.time() - float(beat[1]):.0f} s ago)"
        for rank in silent
        for beat in [beats[rank] or ["0", str(time.time()), "?", "?"]]
    ]
    who = f"one of {', '.join(named)}" if len(named) > 1 else "".join(named)
    return f"waited without success at step {here} for {who}" if named else ""


def _store() -> dist.Store:
    return dist.distributed_c10d._get_default_store()


class Meshes(NamedTuple):
    """The ranks with which this rank works, by kind of work."""

    data: DeviceMesh
    """The dimensions of the ranks that work on other samples: ("shard",) or ("replicate",
    "shard")."""
    tensor: DeviceMesh | None
    """The ranks that compute each matrix product together; None: only this rank."""


def build_objective(
    model: ModelConfig,
    config: TrainConfig,
    ranks: Ranks,
    *,
    packed: bool,
    own_parts: OwnParts = NONE,
) -> nn.Module:
    """Build the model and its loss with initial weights, ready to be called on every rank. The
    weights are the same whether the model is whole or sharded."""
    if ranks.tensor > 1:
        check_divisible(model, own_parts, ranks.tensor)
    device = "meta" if ranks.sharded else ranks.device
    built = build_model(model, seed=config.seed, device=device, own_parts=own_parts)
    meshes = make_meshes(config, ranks) if ranks.sharded else None
    if meshes is None:
        objective = Objective(built, config, packed=packed, half=HALF.get(config.precision))
    else:
        objective = sharded_objective(built, config, meshes, packed=packed)
    if config.compile:
        compile_layers(objective)
    if config.recompute:
        recompute_layers(objective)
    if meshes is not None:
        shard(objective, config, meshes)
        # `materialise` would make plain tensors instead of shards
        objective.to_empty(device=ranks.device)
        fill_tables(objective)
        copy_initial_weights(objective.model, config.seed)
    elif ranks.world > 1:
        # The tables of clearhead's own parts are the same on all ranks and never change.
        return DistributedDataParallel(objective, forward_sync_buffers=bool(own_parts.given))
    return objective


def sharded_objective(
    model: Model,
    config: TrainConfig,
    meshes: Meshes,
    *,
    packed: bool = False,
    gathered: bool | None = None,
) -> Objective:
    """Build the model and its loss for `shard`. `gathered` says whether weights stay gathered
    between the passes of a step; None: those of a small model do."""
    group, loss = 1, cross_entropy
    if meshes.tensor is not None:
        group, loss = meshes.tensor.size(), loss_of_shares(model, meshes.tensor)
    numbers = sum(parameter.numel() for parameter in model.parameters()) / group
    return Objective(
        model,
        config,
        packed=packed,
        stays_gathered=stays_gathered(numbers, config) if gathered is None else gathered,
        summed_loss=loss,
    )


def objective_of(module: nn.Module) -> Objective:
    """Return the objective that `build_objective` has wrapped."""
    inner = module.module if isinstance(module, DistributedDataParallel) else module
    assert isinstance(inner, Objective)
    return inner


def layers_of(module: nn.Module) -> list[nn.Module]:
    """Return the layers of a model, which are the units of sharding and recomputation."""
    return [part for part in module.modules() if isinstance(part, EncoderLayer | DecoderLayer)]


def compile_layers(objective: Objective) -> None:
    """Compile each layer. This comes before `recompute_layers`, because torch.compile does not look
    into the hooks of the latter."""
    for layer in layers_of(objective):
        layer.forward = torch.compile(layer.forward, dynamic=True)


def recompute_layers(objective: Objective) -> None:
    """Let each layer drop its activations and recompute them in the backward pass. This happens
    below the hooks that gather a sharded layer, so the layer is whole when it runs again."""
    for layer in layers_of(objective):
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)


def make_meshes(config: TrainConfig, ranks: Ranks) -> Meshes:
    """Arrange the ranks. All ranks share the model; with replicas, each group of ranks shares a
    copy of it (HSDP). Neighbours are tensor-parallel."""
    for name, together in (
        ("tensor_parallel", ranks.tensor),
        ("replicas", config.replicas * ranks.tensor),
    ):
        if ranks.world % together:
            rule = f"must divide the number of ranks, {ranks.world}"
            if name == "replicas" and ranks.tensor > 1:
                rule = f"times train.tensor_parallel={ranks.tensor} {rule}"
            raise ConfigError(f"train.{name}", getattr(config, name), rule, f"try {name}=1")
    shards = ranks.data_world // config.replicas
    sizes = {"replicate": config.replicas, "shard": shards, "tensor": ranks.tensor}
    sizes = {name: size for name, size in sizes.items() if size > 1 or name == "shard"}
    shape, names = tuple(sizes.values()), tuple(sizes)
    mesh = init_device_mesh(ranks.device.type, shape, mesh_dim_names=names)
    return Meshes(mesh[names[:-1]], mesh["tensor"]) if ranks.tensor > 1 else Meshes(mesh, None)


def shard(objective: Objective, config: TrainConfig, meshes: Meshes) -> None:
    """Shard the model. Each layer is a unit that is gathered when it is needed. The rest (the token
    tables and the last norms) belongs to the root, since a tied table is read at both ends."""
    if meshes.tensor is not None:
        divide(objective.model, meshes.tensor)
    half = HALF.get(config.precision)
    policy = MixedPrecisionPolicy(
        param_dtype=half, reduce_dtype=None if half is None else torch.float32
    )
    for layer in layers_of(objective):
        fully_shard(
            layer,
            mesh=meshes.data,
            mp_policy=policy,
            reshard_after_forward=not objective.stays_gathered,
        )
    fully_shard(objective, mesh=meshes.data, mp_policy=policy)


def stays_gathered(numbers: float, config: TrainConfig) -> bool:
    """Tell whether weights of this many numbers stay gathered between the passes of a step."""
    return numbers * HALF.get(config.precision, torch.float32).itemsize <= KEEP_GATHERED


def reshard(objective: nn.Module) -> None:
    """Shard the weights again. After a forward pass without a backward pass, some or all weights
    are still whole."""
    for module in objective.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


@torch.no_grad()
def copy_initial_weights(model: Model, seed: int) -> None:
    """Give the model its initial weights. Each rank draws every tensor whole, one at a time, and
    keeps its shard, so the numbers do not depend on the number of ranks, and nothing is sent."""
    for parameter, values in initial_weights(model, seed):
        if not isinstance(parameter, DTensor):  # a buffer of a user's own part
            parameter.copy_(values)
            continue
        mine = distribute_tensor(
            values, parameter.device_mesh, parameter.placements, src_data_rank=None
        )
        parameter.copy_(mine)


def whole_model(objective: nn.Module, ranks: Ranks) -> Model | None:
    """Return the model in one piece, in its present mode, on rank 0, and None on other ranks. All
    ranks must call this. A sharded model is copied even while its shards are gathered: passes on
    one rank alone would permanently change the order in which that rank asks the others for
    weights."""
    reshard(objective)
    model = objective_of(objective).model
    if not any(isinstance(parameter, DTensor) for parameter in model.parameters()):
        return model if ranks.first else None
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(objective_of(objective), options=options)
    if not ranks.first:
        return None
    whole = build_model(model.config, device="meta", own_parts=model.own_parts)
    materialise(whole, "cpu")
    whole.load_state_dict({name.removeprefix("model."): value for name, value in state.items()})
    return whole.train(model.training)
