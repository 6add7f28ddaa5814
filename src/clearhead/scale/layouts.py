"""Lists the possible layouts, finds those that fit, and chooses the fastest of them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from clearhead.config import ModelConfig, TrainConfig
from clearhead.errors import ConfigError
from clearhead.models.own_parts import NONE
from clearhead.scale.accelerators import Accelerator
from clearhead.scale.memory import FP32, RankLayout, RankMemory, bytes_computed_in, rank_memory
from clearhead.scale.operations import flops_per_token, inventory, tensor_share
from clearhead.training.tensor_parallel import check_divisible

USABLE = 0.9
"""Share of an accelerator's memory that tensors can have: the context of the driver, the
libraries' workspaces and fragments take the rest. An assumption."""


@dataclass(frozen=True, kw_only=True)
class LayoutCandidate:
    """A layout, whether it fits, and how long a step of it takes."""

    layout: RankLayout
    memory: RankMemory
    fits: bool
    compute_seconds: float
    """The seconds of a step's computation at the assumed utilisation; with recompute, a third
    more."""
    communication_seconds: float
    """The seconds of a step's communication at the full speed of the links: FSDP's and DDP's share
    of it can hide behind the computation."""
    exposed_seconds: float
    """The seconds of tensor parallel's communication, which cannot hide."""

    @property
    def seconds(self) -> float:
        """The seconds of a step."""
        return max(self.compute_seconds, self.communication_seconds) + self.exposed_seconds


def layouts(
    model: ModelConfig, gpus: int, rows_per_step: int, per_node: int
) -> Iterator[RankLayout]:
    """Return all layouts that deal `rows_per_step` sequences out evenly over the ranks. Tensor
    parallelism stays inside a node."""
    for tensor in _powers(min(per_node, gpus)):
        if gpus % tensor or not _divisible(model, tensor):
            continue
        ranks = gpus // tensor
        if rows_per_step % ranks:
            continue
        for shard in _divisors(ranks):
            for micro_batches in _divisors(rows_per_step // ranks):
                for recompute in (False, True):
                    yield RankLayout(
                        replicas=ranks // shard,
                        shard=shard,
                        tensor=tensor,
                        rows=rows_per_step // ranks // micro_batches,
                        micro_batches=micro_batches,
                        recompute=recompute,
                    )


def candidate(
    model: ModelConfig,
    train: TrainConfig,
    layout: RankLayout,
    *,
    kind: Accelerator,
    length: int,
    utilisation: float,
) -> LayoutCandidate:
    """Return the layout with its memory and its times."""
    memory = rank_memory(model, train, layout, length=length)
    flops = flops_per_token(model, length, "without-embeddings")
    tokens = layout.rows_per_step * length / layout.ranks
    again = 4 / 3 if layout.recompute else 1.0
    return LayoutCandidate(
        layout=layout,
        memory=memory,
        fits=memory.peak <= USABLE * kind.memory,
        compute_seconds=again * flops * tokens / (utilisation * kind.flops),
        communication_seconds=_exchange_seconds(model, train, layout, kind),
        exposed_seconds=_tensor_seconds(model, train, layout, kind, length),
    )


def fastest(candidates: Sequence[LayoutCandidate]) -> LayoutCandidate | None:
    """Return the fastest of the layouts that fit. Layouts without tensor parallelism come first,
    since utilisations are measured without it, and it is not known how much its smaller products
    cost; then the lowest time counts. Of equal times, the fewest tensor-parallel ranks win, then
    the largest micro-batches (kernels are faster with them), then the least memory."""
    return min(
        (candidate for candidate in candidates if candidate.fits),
        key=lambda candidate: (
            candidate.layout.tensor > 1,
            candidate.seconds,
            candidate.layout.tensor,
            candidate.layout.micro_batches,
            candidate.memory.peak,
        ),
        default=None,
    )


def _exchange_seconds(
    model: ModelConfig, train: TrainConfig, layout: RankLayout, kind: Accelerator
) -> float:
    """Return the seconds that exchanging weights and gradients takes in a step. A ring sends nearly
    as many bytes as the whole tensor has. FSDP gathers the weights for the forward and for the
    backward pass of each micro-batch and reduces the gradients once; replicas then all-reduce what
    each rank holds."""
    numbers = inventory(tensor_share(model, layout.tensor)).total
    between_replicas = 2 * FP32 * numbers / layout.shard if layout.replicas > 1 else 0.0
    seconds = between_replicas / kind.bandwidth(layout.ranks)
    if layout.shard > 1:
        sent = (2 * bytes_computed_in(train) * layout.micro_batches + FP32) * numbers
        seconds += sent / kind.bandwidth(layout.shard * layout.tensor)
    return seconds


def _tensor_seconds(
    model: ModelConfig, train: TrainConfig, layout: RankLayout, kind: Accelerator, length: int
) -> float:
    """Return the seconds that tensor parallelism communicates in a step. It sums the stream over
    the group once for each sublayer in the forward pass, and once in the backward pass; a ring
    sends it twice for each sum. Recompute repeats the sums of the forward pass."""
    if layout.tensor == 1:
        return 0.0
    tokens = layout.rows * layout.micro_batches * length
    stream = tokens * model.d_model * bytes_computed_in(train)
    sublayers = 2 * model.n_layers
    if model.family == "encoder-decoder":
        sublayers += 3 * model.decoder_layers
    sums = sublayers * (3 if layout.recompute else 2)
    return 2 * sums * stream / kind.bandwidth(layout.tensor)


def _divisible(model: ModelConfig, group: int) -> bool:
    try:
        if group > 1:
            check_divisible(model, NONE, group)
    except ConfigError:
        return False
    return True


def _powers(limit: int) -> list[int]:
    return [2**power for power in range(limit.bit_length()) if 2**power <= limit]


def _divisors(number: int) -> list[int]:
    small = [divisor for divisor in range(1, math.isqrt(number) + 1) if number % divisor == 0]
    return sorted({*small, *(number // divisor for divisor in small)})
