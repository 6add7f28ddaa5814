"""Counts what a step keeps between forward and backward: the model's own code runs on fake tensors,
which have shapes but no memory, and every allocation is counted."""

import weakref
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from clearhead.config import ModelConfig, TrainConfig
from clearhead.data.batches import Batch, PairBatch, TokenBatch
from clearhead.models import build_model
from clearhead.scale.operations import with_layers
from clearhead.training.distributed import layers_of, recompute_layers
from clearhead.training.loss import HALF, Objective

LONGEST = 8192
"""Tokens of the longest text that is traced."""


@dataclass(frozen=True, kw_only=True)
class Activations:
    """Bytes of one micro-batch."""

    per_layer: float
    """Bytes that each layer (of each stack) keeps until its backward pass."""
    at_loss: float
    """The highest number of further bytes held until the backward pass reaches the last layer:
    embeddings, logits and their gradient."""
    in_layers: float
    """The highest number of further bytes held in the backward pass of a layer, including its own
    gradient and (with recompute) its activations."""
    at_end: float
    """The highest number of bytes held besides gradients where the backward pass ends."""


def activations(
    model: ModelConfig, train: TrainConfig, *, rows: int, length: int, sharded: bool
) -> Activations:
    """Trace a step with one row and with two: all four figures grow by the same amount with each
    row."""
    keys = replace(
        TrainConfig(),
        precision=train.precision,
        recompute=train.recompute,
        loss_chunk=train.loss_chunk,
        label_smoothing=train.label_smoothing,
        z_loss=train.z_loss,
    )  # nothing else matters here: other layouts find the same trace
    of_one_row, of_two_rows = (
        _of_length(model, keys, n_rows, length, sharded) for n_rows in (1, 2)
    )
    return _on_the_line(of_one_row, of_two_rows, rows - 1)


def _on_the_line(first: Activations, second: Activations, at: float) -> Activations:
    """Return the value at this place on the line through two points, at 0 and at 1."""
    pairs = {e.name: (getattr(first, e.name), getattr(second, e.name)) for e in fields(Activations)}
    return Activations(**{name: a + at * (b - a) for name, (a, b) in pairs.items()})


def _of_length(
    model: ModelConfig, train: TrainConfig, rows: int, length: int, sharded: bool
) -> Activations:
    """Count for this length. A long text takes long to trace, so each token beyond LONGEST adds the
    same amount, unless a matrix of all pairs of tokens is held."""
    if length <= LONGEST or model.attention == "explicit" or model.positions == "alibi":
        return _of_rows(model, train, rows, length, sharded)
    half = LONGEST // 2
    shorter, longer = (_of_rows(model, train, rows, n, sharded) for n in (half, LONGEST))
    return _on_the_line(shorter, longer, (length - half) / half)


@cache
def _of_rows(
    model: ModelConfig, train: TrainConfig, rows: int, length: int, sharded: bool
) -> Activations:
    """Trace with one and with two layers; each further layer adds the same amount. The kernels are
    those of the CPU; a GPU's fused norms keep less. Dropout of attention weights is left out, since
    a GPU's kernel has its own. An encoder is counted as a decoder, with the logits of all
    positions."""
    if model.family == "encoder":
        model = replace(model, family="decoder", n_segments=0, labels=())
    model = replace(model, p_attention_dropout=0.0, max_length=max(length, model.max_length))
    of_one_layer, of_two_layers = (
        _trace(with_layers(model, depth), train, rows=rows, length=length, sharded=sharded)
        for depth in (1, 2)
    )
    per_layer = of_two_layers.after_forward - of_one_layer.after_forward
    return Activations(
        per_layer=per_layer,
        at_loss=of_one_layer.before_layers - per_layer,
        in_layers=of_one_layer.in_layers - per_layer,
        at_end=max(0, of_one_layer.in_layers - of_one_layer.gradients),
    )


class _Trace(NamedTuple):
    """Bytes."""

    after_forward: int
    before_layers: int
    """The highest number until the backward pass reaches the last layer."""
    in_layers: int
    """The highest number after that."""
    gradients: int


class _Allocations(TorchDispatchMode):
    """Counts the bytes of all storages that operations have made and that still exist."""

    def __init__(self, existing: list[Tensor]) -> None:
        super().__init__()
        self.known = {tensor.untyped_storage()._cdata for tensor in existing}
        self.now = self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types  # torch's signature
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._count(tensor.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key not in self.known:
            self.known.add(key)
            self.now += size
            self.most = max(self.most, self.now)
            weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.now -= size


class _Step(nn.Module):
    """Forward and backward in one call: recomputation needs the parameters in both."""

    def __init__(self, objective: Objective) -> None:
        super().__init__()
        self.objective = objective

    def forward(self, batch: Batch, counted: _Allocations) -> _Trace:
        before_layers = 0

        def reached(*_: object) -> None:
            nonlocal before_layers
            before_layers, counted.most = counted.most, counted.now

        layers_of(self.objective)[-1].register_full_backward_pre_hook(reached)
        loss = self.objective(batch)
        after_forward = counted.now
        loss.backward()
        gradients = sum(p.grad.nbytes for p in self.parameters() if p.grad is not None)
        return _Trace(after_forward, before_layers, counted.most, gradients)


def _trace(
    model: ModelConfig, train: TrainConfig, *, rows: int, length: int, sharded: bool
) -> _Trace:
    # Sharding casts the gathered weights; otherwise autocast casts what it needs.
    half = HALF.get(train.precision)
    dtype = half if half is not None and sharded else torch.float32
    cast = None if sharded else half
    objective = Objective(build_model(model, device="meta"), train, half=cast)
    if train.recompute:
        recompute_layers(objective)
    step = _Step(objective)
    with FakeTensorMode():
        weights = {
            name: torch.empty(parameter.shape, dtype=dtype, requires_grad=True)
            for name, parameter in step.named_parameters()
        }
        tables = {
            name: torch.empty(buffer.shape, dtype=buffer.dtype)
            for name, buffer in step.named_buffers()
        }
        held = {**weights, **tables}
        with _Allocations(list(held.values())) as counted:
            return functional_call(step, held, (_batch(model, rows, length), counted))


def _batch(model: ModelConfig, rows: int, length: int) -> Batch:
    tokens = torch.zeros(rows, length, dtype=torch.long)
    if model.family == "encoder-decoder":
        return PairBatch(source=tokens, target_input=tokens, target_output=tokens, samples=())
    return TokenBatch(inputs=tokens, targets=tokens, documents=tokens, samples=())
