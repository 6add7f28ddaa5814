"""Rotary positions (Su et al. 2021): queries and keys are rotated."""

import torch
from torch import nn

from clearhead.parts.positions import Pairs, Rotation, rotate
from clearhead.shapes import Positions, Tensor

__all__ = ["RotaryPositions", "rotate"]


class RotaryPositions(nn.Module):
    """The angles by which a query or key is rotated at its position, so that scores depend on
    relative positions only."""

    def __init__(
        self, n_positions: int, d_head: int, *, pairs: Pairs = "halves", base: float = 10_000.0
    ) -> None:
        super().__init__()
        self.pairs: Pairs = pairs
        self.base = base
        for name in ("cos", "sin"):
            self.register_buffer(name, torch.empty(n_positions, d_head), persistent=False)
        self.cos: Tensor
        self.sin: Tensor
        self.fill_tables()

    def fill_tables(self) -> None:
        """Fills the tables of angles. A model that was built on the meta device calls this again
        once it has memory."""
        if not self.cos.is_meta:
            n_positions, d_head = self.cos.shape
            # Llama was trained, and is served, in fp32 and in this order of operations.
            frequency = 1.0 / self.base ** (torch.arange(0, d_head, 2).float() / d_head)
            angle = torch.arange(n_positions).float()[:, None] * frequency
            if self.pairs == "halves":
                angle = torch.cat((angle, angle), dim=1)
            else:
                angle = angle.repeat_interleave(2, dim=1)
            self.cos.copy_(angle.cos())
            self.sin.copy_(angle.sin())

    def forward(self, positions: Positions) -> Rotation:
        return Rotation(self.cos[positions][:, None], self.sin[positions][:, None], self.pairs)
