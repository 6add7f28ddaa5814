"""Tensor parallelism: a group of ranks computes each matrix product together.

Each rank of a group holds some heads of every attention, some columns of every feed-forward network
and some rows of the token tables (Shoeybi et al. 2019). The stream between the sublayers is whole
on every rank, and is the same bit for bit. A sublayer sums over the group once in the forward pass,
after its last matrix, and once in the backward pass, before its first.

Placements are torch's DTensor; the model knows nothing about them. Hooks turn tensors into DTensors
where a module has weights, and back after it. FSDP2 and checkpoints understand the rest."""

import logging
import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Placement,
    Replicate,
    Shard,
    distribute_tensor,
)

from clearhead.config.model import ModelConfig
from clearhead.errors import ConfigError
from clearhead.models import Classifier, Model, Seq2Seq
from clearhead.models.own_parts import OwnParts
from clearhead.parts.attention import MultiHeadAttention
from clearhead.parts.embeddings import OutputProjection
from clearhead.parts.feed_forward import FeedForward
from clearhead.parts.later.alibi import AlibiPositions
from clearhead.parts.later.gated import GatedFeedForward
from clearhead.parts.residual import Residual, Sublayer
from clearhead.training.loss import SummedLoss, cross_entropy


def check_divisible(model: ModelConfig, own_parts: OwnParts, group: int) -> None:
    """Raises unless `group` ranks can share the matrices of this model."""
    sizes = {"n_kv_heads": model.kv_heads, "d_ff": model.d_ff}  # n_kv_heads divides n_heads
    for name, size in sizes.items():
        if size % group:
            rule = f"must divide model.{name}={size}"
            possible = math.gcd(group, *sizes.values())
            raise ConfigError("train.tensor_parallel", group, rule, f"try {possible}")
    for name, size in (
        ("vocab_size", model.vocab_size),
        ("target_vocab_size", model.output_vocab_size),
    ):
        if -(-size // group) * (group - 1) >= size:  # equal shares, except for a smaller last one
            rule = f"leaves a rank without any token of model.{name}={size}"
            raise ConfigError("train.tensor_parallel", group, rule, "try fewer")
    if model.p_attention_dropout:
        rule = f"would drop the same weights on each of train.tensor_parallel={group} ranks"
        raise ConfigError("model.p_attention_dropout", model.p_attention_dropout, rule, "try 0.0")
    if own_parts.given:
        names = ", ".join(own_parts.names.values())
        rule = f"cannot divide a part of your own ({names})"
        raise ConfigError("train.tensor_parallel", group, rule, "try tensor_parallel=1")


def divide(model: Model, mesh: DeviceMesh) -> None:
    """Turn every parameter into a DTensor on the mesh, either divided or the same on all ranks. The
    loss then takes a share of the logits: `loss_of_shares`."""
    group = mesh.size()
    _quieten_torch()
    for module in model.modules():
        match module:
            case MultiHeadAttention():
                for matrix in (module.query, module.key, module.value):
                    _divide_outputs(matrix, mesh)
                _divide_inputs(module.output, mesh)
                module.n_heads //= group
                module.n_kv_heads //= group
            case GatedFeedForward():
                _divide_outputs(module.gate, mesh)
                _divide_outputs(module.up, mesh)
                _divide_inputs(module.down, mesh)
            case FeedForward():
                _divide_outputs(module.up, mesh)
                _divide_inputs(module.down, mesh)
            case Residual():
                module.register_forward_pre_hook(partial(_sum_gradient_of_input, mesh))
            case AlibiPositions():
                module.register_forward_hook(partial(_own_heads, mesh))
            case OutputProjection():
                _place(module, mesh, {"weight": Shard(0), "bias": Shard(0)})
                _hook(module, mesh, Replicate())
    tables = [model.tokens]
    if isinstance(model, Seq2Seq):
        tables.append(model.target_table)
        # Every decoder layer computes its keys and values from it, each rank those of its own
        # heads.
        model.encoder.register_forward_hook(lambda *call: sum_gradient(call[-1], mesh))
    for table in {id(table): table for table in tables}.values():
        _place(table, mesh, {"weight": Shard(0)})
        _hook(table, mesh, Replicate(), Replicate())
    for module in model.modules():
        names = [name for name, _ in module.named_parameters(recurse=False)]
        if names and not isinstance(getattr(module, names[0]), DTensor):
            _place(module, mesh, dict.fromkeys(names, Replicate()))
            _hook(module, mesh, Replicate())


def loss_of_shares(model: Model, mesh: DeviceMesh) -> Callable[..., SummedLoss]:
    """Return the loss of a divided model, in which each rank has a share of the logits."""
    if isinstance(model, Classifier):  # whose head is whole on every rank
        return cross_entropy
    return VocabularyParallel(mesh, model.config.output_vocab_size)


def _quieten_torch() -> None:
    """Silence two warnings that do not concern this code. Nothing changes a layer's output in
    place; and of the two things that take two collectives, one is a single number and the other is
    the published model."""
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    logging.getLogger("torch.distributed.tensor._redistribute").setLevel(logging.ERROR)


class VocabularyParallel:
    """`cross_entropy` for ranks that each have the logits of their share of the vocabulary. The
    matrix of all logits never exists."""

    def __init__(self, mesh: DeviceMesh, vocab_size: int) -> None:
        self.mesh, self.vocab_size = mesh, vocab_size
        self.first = mesh.get_local_rank() * -(-vocab_size // mesh.size())

    def __call__(
        self,
        logits: Tensor,
        targets: Tensor,
        *,
        ignore_id: int,
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
    ) -> SummedLoss:
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32)).flatten(0, -2)
        targets = targets.flatten()
        width = logits.shape[-1]
        places = targets - self.first
        here = (places >= 0) & (places < width)
        own = logits.gather(1, places.clamp(0, width - 1)[:, None])[:, 0]

        highest = logits.detach().amax(-1)  # this only changes the magnitude of the sum
        dist.all_reduce(highest, dist.ReduceOp.MAX, self.mesh.get_group())
        shares = torch.stack(
            [
                (logits - highest[:, None]).exp().sum(-1),
                own.where(here, 0.0),
                logits.sum(-1) if label_smoothing else torch.zeros_like(highest),
            ]
        )
        exponentials, of_target, of_all = sum_over_group(shares, self.mesh)

        log_z = exponentials.log() + highest
        nats = log_z - (1 - label_smoothing) * of_target
        nats = nats - label_smoothing * of_all / self.vocab_size + z_loss * log_z.square()
        real = targets != ignore_id
        return SummedLoss(nats.where(real, 0.0).sum(), real.sum())


def sum_over_group(x: Tensor, mesh: DeviceMesh) -> Tensor:
    """Return the sum of the ranks' tensors. Its gradient is every rank's own."""
    return _whole(DTensor.from_local(x, mesh, [Partial()]))


def sum_gradient(x: Tensor, mesh: DeviceMesh) -> Tensor:
    """Return x itself. Its gradient is the sum of the ranks' gradients."""
    return DTensor.from_local(x, mesh, [Replicate()]).to_local(grad_placements=[Partial()])


def _divide_outputs(matrix: nn.Linear, mesh: DeviceMesh) -> None:
    """Let each rank compute some of the outputs. The gradient of the input, a sum over all outputs,
    is left unsummed: `_sum_gradient_of_input` sums it once for all matrices of a sublayer."""
    _place(matrix, mesh, {"weight": Shard(0), "bias": Shard(0)})

    def forward(x: Tensor) -> Tensor:
        bias = None if matrix.bias is None else _local(matrix.bias)
        return F.linear(x, _local(matrix.weight), bias)

    _compute_by(matrix, forward)


def _divide_inputs(matrix: nn.Linear, mesh: DeviceMesh) -> None:
    """Let each rank compute its share of every output. The shares are summed."""
    _place(matrix, mesh, {"weight": Shard(1), "bias": Replicate()})

    def forward(x: Tensor) -> Tensor:
        out = sum_over_group(F.linear(x, _local(matrix.weight)), mesh)
        return out if matrix.bias is None else out + _local(matrix.bias)

    _compute_by(matrix, forward)


def _compute_by(module: nn.Module, forward: Callable[[Tensor], Tensor]) -> None:
    module.forward = forward


def _local(parameter: Tensor) -> Tensor:
    """Return this rank's share."""
    assert isinstance(parameter, DTensor)
    return parameter.to_local()


def _place(module: nn.Module, mesh: DeviceMesh, placements: dict[str, Placement]) -> None:
    for name, placement in placements.items():
        parameter = getattr(module, name)
        if parameter is not None:
            divided = distribute_tensor(parameter.data, mesh, [placement], src_data_rank=None)
            module.register_parameter(name, nn.Parameter(divided))


def _hook(
    module: nn.Module, mesh: DeviceMesh, inputs: Placement, outputs: Placement | None = None
) -> None:
    """Turn the first input into a DTensor, and the output into a tensor again: with `outputs`, in
    that placement."""

    def to_dtensor(_: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
        return DTensor.from_local(given[0], mesh, [inputs]), *given[1:]

    def to_tensor(_: nn.Module, __: Any, output: DTensor) -> Tensor:
        return output.to_local() if outputs is None else _whole(output)

    module.register_forward_pre_hook(to_dtensor)
    module.register_forward_hook(to_tensor)


def _whole(x: DTensor) -> Tensor:
    return x.redistribute(placements=[Replicate()]).to_local()


def _sum_gradient_of_input(
    mesh: DeviceMesh, _: nn.Module, inputs: tuple[Tensor, Sublayer]
) -> tuple[Tensor, Sublayer]:
    x, sublayer = inputs
    return x, lambda y: sublayer(sum_gradient(y, mesh))


def _own_heads(mesh: DeviceMesh, _: nn.Module, __: Any, bias: Tensor) -> Tensor:
    return bias.chunk(mesh.size(), dim=1)[mesh.get_local_rank()]
