"""Computes the memory of one rank, by kind and by moment."""

from dataclasses import dataclass, replace

from clearhead.config import ModelConfig, TrainConfig
from clearhead.scale.activations import activations
from clearhead.scale.operations import inventory, share, tensor_share
from clearhead.training.distributed import stays_gathered
from clearhead.training.loss import HALF

FP32 = 4
STATES = {"adamw": 2, "muon": 1, "adafactor": 0}
"""The number of optimizer tensors for each matrix. Adafactor's rows and columns are next to
nothing; Muon's token tables, which AdamW updates, are counted apart."""


@dataclass(frozen=True, kw_only=True)
class RankLayout:
    """How the ranks share the work: `replicas` × `shard` × `tensor` of them."""

    replicas: int = 1
    """Groups that each hold the whole model."""
    shard: int = 1
    """Ranks over which FSDP deals out each tensor; 1 is DDP, unless there is tensor parallel."""
    tensor: int = 1
    """Ranks that compute each matrix product together."""
    rows: int = 1
    """Sequences of a micro-batch on each rank (or group of `tensor` ranks)."""
    micro_batches: int = 1
    recompute: bool = False

    @property
    def ranks(self) -> int:
        """The number of all accelerators."""
        return self.replicas * self.shard * self.tensor

    @property
    def sharded(self) -> bool:
        """Tell whether FSDP is used; tensor parallelism comes with it."""
        return self.shard * self.tensor > 1

    @property
    def rows_per_step(self) -> int:
        """The number of sequences in a whole step."""
        return self.replicas * self.shard * self.rows * self.micro_batches

    @property
    def train(self) -> dict[str, str | int]:
        """Return the settings for the table [train] of a recipe."""
        return {
            "parallel": "fsdp" if self.sharded else "ddp",
            "replicas": self.replicas if self.sharded else 1,
            "tensor_parallel": self.tensor,
            "micro_batches": self.micro_batches,
            "recompute": self.recompute,
        }


@dataclass(frozen=True, kw_only=True)
class Moment:
    """Bytes that come and go."""

    gradients: float
    activations: float
    communication: float
    """Gathered weights, and gradients on their way."""

    @property
    def total(self) -> float:
        """The sum of the three kinds."""
        return self.gradients + self.activations + self.communication


@dataclass(frozen=True, kw_only=True)
class RankMemory:
    """Bytes of one rank, at the three moments of a step at which memory use can peak."""

    weights: float
    optimizer: float
    at_loss: Moment
    """All activations and the logits' gradient are there."""
    in_layers: Moment
    """The backward pass is in the last layer."""
    at_end: Moment
    """The backward pass has passed the first layer: all gradients are there."""

    @property
    def moments(self) -> tuple[Moment, Moment, Moment]:
        """The moments in the order in which they come."""
        return self.at_loss, self.in_layers, self.at_end

    @property
    def peak(self) -> float:
        """The highest total of the three moments, including what is always held."""
        return self.weights + self.optimizer + max(moment.total for moment in self.moments)


def rank_memory(
    model: ModelConfig, train: TrainConfig, layout: RankLayout, *, length: int
) -> RankMemory:
    """The memory of the first rank, which has the largest share.

    Weights, gradients and optimizer are fp32. A tensor-parallel rank is a rank of the smaller model
    that it computes. With several micro-batches the gradients of the earlier ones are there from
    the start, and with FSDP they are whole on every rank until the last one exchanges them."""
    model = tensor_share(model, layout.tensor)
    tensors = inventory(model)
    whole = FP32 * tensors.total
    held = FP32 * share(tensors.shapes, layout.shard)
    optimizer = (STATES[train.optimizer] + (train.ema is not None)) * held
    if train.optimizer == "muon":
        optimizer += FP32 * share(tensors.root, layout.shard)
    earlier = whole if layout.micro_batches > 1 else 0.0
    kept = activations(
        model,
        replace(train, recompute=layout.recompute),
        rows=layout.rows,
        length=length,
        sharded=layout.sharded,
    )
    layers = max(model.n_layers, model.decoder_layers) * kept.per_layer
    at_loss, in_layers, at_end = _communication(model, train, layout, kept.per_layer)
    return RankMemory(
        weights=held,
        optimizer=optimizer,
        at_loss=Moment(
            gradients=earlier,
            activations=layers + kept.at_loss,
            communication=at_loss,
        ),
        in_layers=Moment(
            gradients=earlier,
            activations=layers + kept.in_layers,
            communication=in_layers,
        ),
        at_end=Moment(
            gradients=max(held, earlier),
            # The temporaries of the root's gradient are gone when its fp32 copy is made.
            activations=max(kept.at_end, FP32 * tensors.in_root * layout.sharded),
            communication=at_end,
        ),
    )


def bytes_computed_in(train: TrainConfig) -> int:
    """The bytes of a number in the gathered weights."""
    return HALF[train.precision].itemsize if train.precision in HALF else FP32


def gathered_once(model: ModelConfig, train: TrainConfig, layout: RankLayout) -> bool:
    """Tell whether the weights of a small model stay gathered between the passes of a step."""
    return stays_gathered(inventory(tensor_share(model, layout.tensor)).total, train)


def _communication(
    model: ModelConfig, train: TrainConfig, layout: RankLayout, per_layer: float
) -> tuple[float, float, float]:
    """Bytes of gathered weights and of gradients on their way, at the three moments.

    FSDP2 keeps the root gathered all the time. At the loss it still holds the buffer in which the
    last layer was gathered; in the layers, one layer and the buffer of the next. While a layer's
    gradient is reduced, from an fp32 copy, its own activations (`per_layer`) are gone already. At
    the end, the root's gradient waits, whole, for the last layer's. A small model is gathered whole
    until the backward pass gives up layer after layer. DDP holds its buckets, one copy of all
    gradients, throughout.
    """
    tensors = inventory(model)
    if not layout.sharded:
        buckets = FP32 * tensors.total if layout.ranks > 1 else 0.0
        return buckets, buckets, buckets
    computed_in = bytes_computed_in(train)
    layer, root = tensors.largest_layer, tensors.in_root
    reduced = FP32 * layer
    if stays_gathered(tensors.total, train):
        held = computed_in * (tensors.total + layer)
        between = tensors.total if layout.micro_batches > 1 else root
        return (
            held,
            held + max(0.0, reduced - per_layer),
            computed_in * (between + root) + reduced,
        )
    return (
        computed_in * (root + layer),
        computed_in * (root + 2 * layer) + max(0.0, reduced - per_layer),
        computed_in * 2 * root + reduced,
    )
