"""How many parameters a model has."""

from typing import NamedTuple

from torch import nn

from clearhead.parts.embeddings import TokenEmbedding
from clearhead.parts.positions import LearnedPositions


class ParameterCount(NamedTuple):
    total: int
    without_embeddings: int
    """Less the tables that tokens, segments and positions are looked up in. An output matrix of
    its own counts; a table that is also the output is taken away once."""


def count_parameters(model: nn.Module) -> ParameterCount:
    """Each tensor once, however many names it has. Works on the meta device."""
    total = sum(parameter.numel() for parameter in model.parameters())
    tables = {
        module.weight
        for module in model.modules()
        if isinstance(module, TokenEmbedding | LearnedPositions)
    }
    return ParameterCount(total, total - sum(table.numel() for table in tables))
