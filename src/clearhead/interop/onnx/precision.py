"""Stores weights in a given precision. The graph computes in fp32 whatever that precision is: only
the stored numbers are rounded, so that a comparison with a model of rounded weights is exact."""

from typing import NamedTuple

import torch
from torch import Tensor

from clearhead.config.tasks import StoredPrecision as Precision
from clearhead.models import Model

SUFFIXES: dict[Precision, str] = {"fp32": "", "fp16": "_fp16", "int8": "_int8"}
"""The suffixes of the file names, by which transformers.js finds them."""


class Stored(NamedTuple):
    """The numbers of a weight as a file holds them."""

    numbers: Tensor
    scales: Tensor | None = None
    """For int8: the number by which the numbers of each row are multiplied."""

    def restored(self) -> Tensor:
        """Return the weight with which the graph computes."""
        numbers = self.numbers.float()
        return numbers if self.scales is None else numbers * self.scales[:, None]


def stored(weight: Tensor, precision: Precision) -> Stored:
    """Return a weight in this precision. With int8, each row of a matrix has a scale of its own.
    Vectors stay in fp32, because they are few and norms are sensitive to rounding."""
    weight = weight.detach().float()
    if precision == "fp16":
        return Stored(weight.half())
    if precision == "fp32" or weight.ndim != 2:
        return Stored(weight)
    scales = (weight.abs().amax(dim=1) / 127).clamp(min=torch.finfo(torch.float32).tiny)
    return Stored((weight / scales[:, None]).round().clamp(-127, 127).to(torch.int8), scales)


@torch.no_grad()
def round_weights(model: Model, precision: Precision) -> None:
    """Give the model the weights that a file of this precision holds."""
    for weight in model.parameters():
        weight.copy_(stored(weight, precision).restored())
