"""Computes the loss as a sum, which is divided once, by all target tokens of a step."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from clearhead.config.train import Precision, TrainConfig
from clearhead.data.batches import (
    IGNORED,
    Batch,
    ClassBatch,
    JoinedBatch,
    LabelledBatch,
    MaskedBatch,
    PairBatch,
    TokenBatch,
)
from clearhead.models import CausalLM, Classifier, MaskedLM, Model, Seq2Seq
from clearhead.shapes import Float, Int, Logits, Tensor, Tokens

HALF: dict[Precision, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""The number format in which a precision computes matrix products, if not fp32."""


class SummedLoss(NamedTuple):
    """Nats over the real targets, and the number of those targets (it may be 0; the sum is then
    0)."""

    nats: Float[Tensor, ""]
    n_targets: Int[Tensor, ""]


def cross_entropy(
    logits: Logits,
    targets: Tokens,
    *,
    ignore_id: int,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
) -> SummedLoss:
    """Sum the negative log-probabilities of all targets except those that are `ignore_id`.

    Averages of averages are wrong if batches differ in length, so sum over micro-batches and ranks,
    and then divide once. Smoothing mixes the target with the uniform distribution (section 5.4);
    `z_loss` is the weight of (log Z)², which is added for each target.
    """
    # Half precision cannot hold a sum of thousands of nats.
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32)).flatten(0, -2)
    targets = targets.flatten()
    nats = F.cross_entropy(
        logits,
        targets,
        ignore_index=ignore_id,
        reduction="sum",
        label_smoothing=label_smoothing,
    )
    real = targets != ignore_id
    if z_loss:
        nats = nats + z_loss * (logits.logsumexp(-1).square() * real).sum()
    return SummedLoss(nats, real.sum())


class Objective(nn.Module):
    """A model and its loss as one module. It is wrapped, sharded, compiled and called as one, and
    the matrix of logits never leaves it."""

    def __init__(
        self,
        model: Model,
        config: TrainConfig,
        *,
        packed: bool = False,
        half: torch.dtype | None = None,
        stays_gathered: bool = False,
        summed_loss: Callable[..., SummedLoss] = cross_entropy,
    ) -> None:
        """`packed`: rows hold several documents, which must not attend to each other. `half`: use
        this dtype where possible (autocast); sharding has its own policy for that.
        `stays_gathered`: sharded weights stay whole between the passes of a step. `summed_loss`
        replaces `cross_entropy` if ranks share the logits and compute it together."""
        super().__init__()
        self.model = model
        self.packed, self.autocast_to = packed, half
        self.label_smoothing, self.z_loss = config.label_smoothing, config.z_loss
        self.chunk = config.loss_chunk
        self.stays_gathered, self.summed_loss = stays_gathered, summed_loss

    def forward(self, batch: Batch, smooth: bool = True) -> Float[Tensor, ""]:
        """Return the summed nats of the batch's targets. `smooth=False` gives plain cross-entropy,
        on which perplexity is based."""
        device = next(self.model.parameters()).device.type
        with torch.autocast(device, self.autocast_to, enabled=self.autocast_to is not None):
            hidden, targets = self._hidden(batch)
            return self._nats(hidden, targets, ignored_target(batch, self.model), smooth)

    def _nats(
        self,
        hidden: Float[Tensor, "places d_model"],
        targets: Tensor,
        ignore_id: int,
        smooth: bool,
    ) -> Float[Tensor, ""]:
        """Return the summed loss, computed in chunks of `train.loss_chunk` positions."""

        def loss(hidden: Tensor, targets: Tensor) -> Tensor:
            return self.summed_loss(
                self._logits(hidden),
                targets,
                ignore_id=ignore_id,
                label_smoothing=self.label_smoothing if smooth else 0.0,
                z_loss=self.z_loss if smooth else 0.0,
            ).nats

        if self.chunk is None or len(hidden) <= self.chunk:
            return loss(hidden, targets)
        pieces = zip(hidden.split(self.chunk), targets.split(self.chunk))
        if not torch.is_grad_enabled():
            return torch.stack([loss(*piece) for piece in pieces]).sum()
        # Each chunk's logits are dropped and recomputed in the backward pass.
        sums: list[Any] = [checkpoint(loss, *piece, use_reentrant=False) for piece in pieces]
        return torch.stack(sums).sum()

    def _hidden(self, batch: Batch) -> tuple[Float[Tensor, "places d_model"], Tensor]:
        """Return the input of the output projection (of a classifier, the logits), and the target
        of each position."""
        match self.model, batch:
            case Seq2Seq() as model, PairBatch():
                # Padding on the right comes after everything that counts, so no mask is needed.
                memory = model.encode(batch.source)
                hidden = model.decode_hidden(batch.target_input, memory, real="all")
                targets = batch.target_output
            case CausalLM() as model, TokenBatch():
                documents = batch.documents if self.packed else None
                hidden = model.hidden(batch.inputs, real="all", documents=documents)
                targets = batch.targets
                if isinstance(batch, JoinedBatch):  # the source needs no logits
                    chosen = targets != IGNORED
                    return hidden[chosen], targets[chosen]
            case MaskedLM() as model, MaskedBatch():
                # A stream has no padding, but texts of different lengths have.
                real = None if isinstance(batch, LabelledBatch) else "all"
                hidden, targets = model.hidden(batch.inputs, real=real), batch.targets
                # one position in seven is predicted; the others need no logits
                chosen = targets != IGNORED
                return hidden[chosen], targets[chosen]
            case Classifier() as model, ClassBatch():
                # only a few logits per row, so recomputing saves nothing
                return model(batch.inputs), batch.targets
            case _:
                what, on = type(self.model).__name__, type(batch).__name__
                raise AssertionError(f"{what} cannot be trained on {on}")
        return hidden.flatten(0, 1), targets.flatten()

    def _logits(self, hidden: Float[Tensor, "places d_model"]) -> Float[Tensor, "places vocab"]:
        model = self.model
        if isinstance(model, Classifier):
            return hidden
        table = model.target_table if isinstance(model, Seq2Seq) else model.tokens
        return model.output(hidden[None], table)[0]


def ignored_target(batch: Batch, model: Model) -> int:
    """Return the id that marks positions without a target."""
    if isinstance(batch, PairBatch):
        assert model.config.pad_id is not None
        return model.config.pad_id
    return IGNORED


def count_targets(batch: Batch, model: Model) -> int:
    """Count the target tokens of a batch, without running the model."""
    targets = batch.target_output if isinstance(batch, PairBatch) else batch.targets
    return int((targets != ignored_target(batch, model)).sum())
