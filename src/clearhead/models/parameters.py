"""How many parameters a model has."""

from typing import NamedTuple

from torch import nn

from clearhead.errors import InputError
from clearhead.parts.embeddings import TokenEmbedding
from clearhead.parts.positions import LearnedPositions


class ParameterCount(NamedTuple):
    """The number of parameters of a model, with and without its lookup tables."""

    total: int
    without_embeddings: int
    """Without the tables of tokens, segments and positions. A separate output matrix counts; a
    table that is also the output is subtracted once."""


def count_parameters(model: nn.Module) -> ParameterCount:
    """Each tensor once, however many names it has. Works on the meta device."""
    if not isinstance(model, nn.Module):
        raise InputError(f"{type(model).__name__} is not a module; give a model (of a run: .model)")
    total = sum(parameter.numel() for parameter in model.parameters())
    kinds = (TokenEmbedding, LearnedPositions)
    tables = {module.weight for module in model.modules() if isinstance(module, kinds)}
    return ParameterCount(total, total - sum(table.numel() for table in tables))
