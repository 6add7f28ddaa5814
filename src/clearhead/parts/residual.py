"""The connection around each sublayer (section 3.1), with its dropout (section 5.4)."""

from collections.abc import Callable
from typing import Literal

from torch import nn

from clearhead.parts.dropout import Dropout
from clearhead.shapes import Stream

Sublayer = Callable[[Stream], Stream]


class Residual(nn.Module):
    """Joins a sublayer to the residual stream.

    The paper's post-norm is norm(x + sublayer(x)). Pre-norm is x + sublayer(norm(x)): nothing
    normalises the stream itself between the embedding and the final norm; sublayers only add to it.
    `residual=False`, an ablation, removes the x before the plus."""

    def __init__(
        self,
        norm: nn.Module,
        *,
        placement: Literal["pre", "post"],
        residual: bool,
        p_dropout: float,
    ) -> None:
        super().__init__()
        self.norm = norm
        self.placement = placement
        self.residual = residual
        self.dropout = Dropout(p_dropout)

    def forward(self, x: Stream, sublayer: Sublayer) -> Stream:
        if self.placement == "pre":
            change = self.dropout(sublayer(self.norm(x)))
            return x + change if self.residual else change
        change = self.dropout(sublayer(x))
        return self.norm(x + change if self.residual else change)

    def extra_repr(self) -> str:
        return f"placement={self.placement!r}, residual={self.residual}"
