"""Measures loss and perplexity on text from which the model does not learn."""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from clearhead.data.batches import move, split_rows
from clearhead.data.loader import Loader, Position
from clearhead.models import Model
from clearhead.training.distributed import Ranks, objective_of, reshard, whole_model, widest
from clearhead.training.loss import count_targets

Measure = Callable[[Model], dict[str, Any]]
"""Your own validation, for instance BLEU: a function that takes a model and returns numbers by
name. Values that are not numbers (`samples`) are written down with them."""


def loss_of_other(name: str) -> str:
    """Return the name of the loss on another corpus."""
    return f"{name}_loss"


def validate(
    objective: nn.Module,
    loader: Loader,
    ranks: Ranks,
    measure: Measure | None = None,
    also: Mapping[str, Loader] = MappingProxyType({}),
    *,
    micro_batches: int,
) -> dict[str, Any]:
    """Measure plain cross-entropy over the whole split (nats for each target) and its perplexity,
    the loss on other splits, and what `measure` finds. The result is the same on every rank. A
    batch is split as in training, so that it needs no more memory."""
    objective.eval()
    try:
        with torch.no_grad():
            nats, n_targets = _sums(objective, loader, ranks, micro_batches)
            values = {"loss": nats / max(1.0, n_targets)}
            # The perplexity of a higher loss would not fit into a float.
            values["perplexity"] = math.exp(min(values["loss"], 700.0))
            for name, other in also.items():
                nats, n_targets = _sums(objective, other, ranks, micro_batches)
                values[loss_of_other(name)] = nats / max(1.0, n_targets)
            if measure is not None:
                whole = whole_model(objective, ranks)
                values |= ranks.gather(None if whole is None else measure(whole))[0] or {}
        return values
    finally:
        reshard(objective)
        objective.train()


def _sums(
    objective: nn.Module, loader: Loader, ranks: Ranks, micro_batches: int
) -> tuple[float, float]:
    model = objective_of(objective).model
    nats = torch.zeros((), dtype=widest(ranks.device), device=ranks.device)
    n_targets = 0
    loader.position = Position()
    for batch in loader:
        for piece in split_rows(move(batch, ranks.device), micro_batches):
            nats += objective(piece, smooth=False)
        n_targets += count_targets(batch, model)
    return float(ranks.total(nats)), float(ranks.total(n_targets))
