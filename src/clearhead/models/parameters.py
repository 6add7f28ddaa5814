"""Counts the parameters of a model."""

from typing import NamedTuple

from torch import nn

from clearhead.errors import InputError
from clearhead.parts.embeddings import TokenEmbedding
from clearhead.parts.positions import LearnedPositions


class ParameterCount(NamedTuple):
    """The number of parameters of a model, with and without its lookup tables."""

    total: int
    without_embeddings: int
    """The count without the tables of tokens, segments and positions. It includes a separate output
    matrix. A table that is also the output matrix is left out."""


def count_parameters(model: nn.Module) -> ParameterCount:
    """Count each tensor once, however many names it has. This works on the meta device, too."""
    if not isinstance(model, nn.Module):
        raise InputError(f"{type(model).__name__} is not a module; give a model (of a run: .model)")
    total = sum(parameter.numel() for parameter in model.parameters())
    kinds = (TokenEmbedding, LearnedPositions)
    tables = {module.weight for module in model.modules() if isinstance(module, kinds)}
    return ParameterCount(total, total - sum(table.numel() for table in tables))
