"""Takes one update of the weights. The same global batch gives the same update, whatever number of
micro-batches and ranks share the work."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from clearhead.data.batches import Batch, move, split_rows
from clearhead.data.order import derive_key
from clearhead.training.distributed import Ranks, objective_of, widest
from clearhead.training.loss import count_targets
from clearhead.training.optimizer import set_learning_rate

LOWEST_SCALE = 1.0


class Update(NamedTuple):
    """The results of a step, which are the same on every rank."""

    loss: float
    """Nats for each target of the global batch."""
    grad_norm: float
    """The norm of the gradient before clipping."""
    n_targets: int
    lr: float
    finite: bool
    """True if loss and gradient were finite; if not, no weight has changed."""
    loss_scale: float | None = None
    """The factor that the loss was multiplied by (fp16 only)."""

    @property
    def overflowed(self) -> bool:
        """Tell whether the step was skipped because the scaled gradient did not fit into fp16. A
        smaller scale helps against that, but not against a loss that is not finite, nor against a
        gradient that is itself too large."""
        scaled = self.loss_scale is not None and self.loss_scale > LOWEST_SCALE
        return scaled and not self.finite and math.isfinite(self.loss)


def take_step(
    objective: nn.Module,
    optimizers: Sequence[Optimizer],
    batch: Batch,
    *,
    ranks: Ranks,
    lr: float,
    micro_batches: int = 1,
    clip_norm: float = 0.0,
    loss_scale: float | None = None,
) -> Update:
    """Compute forward and backward passes, clip the gradient, and update the weights. `batch` is
    this rank's share of the global batch. The process waits for the device once, to know whether
    all numbers are finite. The answer is the same on every rank, because an overflow on one of them
    is in the sum of all gradients.

    `loss_scale` keeps gradients, most of which are tiny, inside the range of fp16 (Micikevicius et
    al. 2018). It is a power of two, so that multiplying and dividing by it is exact."""
    n_targets = ranks.count(count_targets(batch, objective_of(objective).model))
    # Ranks average their gradients; multiplied by the number of ranks, the average is the sum.
    for_each_target = ranks.data_world * (loss_scale or 1.0) / max(1, n_targets)
    nats = torch.zeros((), dtype=widest(ranks.device), device=ranks.device)
    pieces = split_rows(move(batch, ranks.device), micro_batches)
    for piece in pieces:
        with ranks.exchange_gradients(objective, now=piece is pieces[-1]):
            piece_nats = objective(piece)
            (piece_nats * for_each_target).backward()
        nats += piece_nats.detach()

    norm = _clip(objective, clip_norm, loss_scale or 1.0).to(nats)
    total, grad_norm = torch.stack([ranks.total(nats), norm]).tolist()
    loss = total / max(1, n_targets)
    finite = math.isfinite(loss) and math.isfinite(grad_norm)
    if finite:
        set_learning_rate(optimizers, lr)
        for optimizer in optimizers:
            optimizer.step()
    for optimizer in optimizers:
        optimizer.zero_grad()
    return Update(loss, grad_norm, n_targets, lr, finite, loss_scale)


def seed_step(seed: int, step: int, rank: int) -> None:
    """Seed the dropout of a step, which depends only on these three values. A resumed run needs no
    saved generator state, and ranks drop different positions, unless they work on the same
    samples."""
    torch.manual_seed(derive_key(seed, "step", step, "rank", rank) % 2**63)


def _clip(objective: nn.Module, clip_norm: float, loss_scale: float) -> torch.Tensor:
    """Take the scale out of the gradient, clip it, and return its norm, which is the same on every
    rank."""
    gradients = [p.grad for p in objective.parameters() if p.grad is not None]
    if loss_scale != 1.0:
        for gradient in gradients:
            gradient.mul_(1 / loss_scale)
    norm = nn.utils.get_total_norm(gradients)
    if clip_norm:
        nn.utils.clip_grads_with_norm_(objective.parameters(), clip_norm, norm)
    return norm.full_tensor() if isinstance(norm, DTensor) else norm
