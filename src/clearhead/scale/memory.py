"""Memory of one rank, by kind and at the two moments at which it can be highest."""

from dataclasses import dataclass, replace

from clearhead.config import ModelConfig, TrainConfig
from clearhead.scale.activations import activations
from clearhead.scale.operations import inventory, share

FP32 = 4
STATES = {"adamw": 2, "muon": 1, "adafactor": 0}
"""Tensors of the optimizer for each matrix. Adafactor's rows and columns are next to nothing;
Muon's token tables, which are AdamW's, are counted apart."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How the ranks share the work: `replicas` × `shard` × `tensor` of them."""

    replicas: int = 1
    """Groups that each hold the whole model."""
    shard: int = 1
    """Ranks over which FSDP deals out each tensor; 1 is DDP."""
    tensor: int = 1
    """Ranks that compute each matrix product together."""
    rows: int = 1
    """Sequences of a micro-batch on each rank (or group of `tensor` ranks)."""
    micro_batches: int = 1
    recompute: bool = False

    @property
    def ranks(self) -> int:
        return self.replicas * self.shard * self.tensor

    @property
    def sharded(self) -> bool:
        return self.shard > 1

    @property
    def rows_per_step(self) -> int:
        return self.replicas * self.shard * self.rows * self.micro_batches

    @property
    def keys(self) -> dict[str, str]:
        """What a recipe has to say."""
        keys = {"train.parallel": "fsdp" if self.sharded else "ddp"}
        if self.sharded and self.replicas > 1:
            keys["train.replicas"] = str(self.replicas)
        if self.tensor > 1:
            keys["train.tensor_parallel"] = str(self.tensor)
        if self.micro_batches > 1:
            keys["train.micro_batches"] = str(self.micro_batches)
        keys["train.recompute"] = str(self.recompute).lower()
        return keys


@dataclass(frozen=True, kw_only=True)
class RankMemory:
    """Bytes of one rank. `start` is where the backward pass begins, with all activations there;
    `end` is where it ends, with all gradients there."""

    weights: float
    optimizer: float
    gradients_at_start: float
    gradients: float
    activations: float
    communication_at_start: float
    communication_at_end: float

    @property
    def start(self) -> float:
        held = self.weights + self.optimizer + self.gradients_at_start
        return held + self.activations + self.communication_at_start

    @property
    def end(self) -> float:
        return self.weights + self.optimizer + self.gradients + self.communication_at_end

    @property
    def peak(self) -> float:
        return max(self.start, self.end)


def rank_memory(
    model: ModelConfig, train: TrainConfig, layout: Layout, *, length: int
) -> RankMemory:
    """Of the first rank, which has the largest share. Weights, gradients and optimizer are fp32.

    With several micro-batches the gradients of the earlier ones are there from the start, and with
    FSDP they are whole on every rank until the last one exchanges them.
    """
    found = inventory(model)
    whole = FP32 * found.total / layout.tensor
    held = FP32 * share(found.shapes, layout.shard) / layout.tensor
    states = STATES[train.optimizer] + (train.ema is not None)
    optimizer = states * held
    if train.optimizer == "muon":
        optimizer += FP32 * share(found.root, layout.shard) / layout.tensor
    accumulated = layout.micro_batches > 1
    kept = activations(
        model, train_with(train, layout), rows=layout.rows, length=length, sharded=layout.sharded
    )
    start, end = _communication(model, train, layout)
    return RankMemory(
        weights=held,
        optimizer=optimizer,
        gradients_at_start=whole * accumulated,
        gradients=whole if accumulated else held,
        activations=kept.total(max(model.n_layers, model.decoder_layers)) / layout.tensor,
        communication_at_start=start,
        communication_at_end=end,
    )


def bytes_computed_in(train: TrainConfig) -> int:
    """Of a number in the gathered weights."""
    return 2 if train.precision == "bf16" else FP32


def train_with(train: TrainConfig, layout: Layout) -> TrainConfig:
    return replace(train, recompute=layout.recompute)


def _communication(model: ModelConfig, train: TrainConfig, layout: Layout) -> tuple[float, float]:
    """Bytes of gathered weights and of gradients on their way, at the start and at the end of the
    backward pass.

    FSDP gathers a layer twice over (the buffer that the ranks fill, and the tensors made from it)
    while the next one is on its way; the root stays gathered all the time, and its gradient leaves
    last. Gradients travel in fp32. DDP holds its buckets, one copy of all gradients, throughout.
    """
    found = inventory(model)
    if not layout.sharded:
        buckets = FP32 * found.total / layout.tensor if layout.ranks > layout.tensor else 0.0
        return buckets, buckets
    computed_in = bytes_computed_in(train)
    layer, root = found.largest_layer / layout.tensor, found.in_root / layout.tensor
    gathered = computed_in * (3 * layer + root)
    leaving = computed_in + FP32
    return gathered + leaving * layer, gathered + leaving * root
