"""Describes how a model takes a mask."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

MaskShape = Literal[
    "(batch, length)",
    "(batch, 1, length)",
    "(batch, 1, 1, length)",
    "(batch, length, length)",
    "(batch, 1, length, length)",
    "(length, length)",
    "(batch,) lengths",
]


@dataclass(frozen=True)
class MaskForm:
    """How a model takes one mask: the argument, the shape, the dtype, and the meaning of True."""

    argument: str
    shape: MaskShape
    true_is_real: bool
    dtype: torch.dtype
    causal: bool = False
    """The caller's mask hides the future as well as padding."""
    always: bool = False
    """It goes with every call: the model cannot be called without it, or is not causal then."""
    padding: bool = True
    """It hides padding; if not, it is causal only."""

    def of(self, real: Tensor) -> Tensor:
        """`real` is (batch, length)."""
        if not self.padding:
            real = torch.ones_like(real)
        if self.shape == "(batch,) lengths":
            return real.sum(dim=1)
        length = real.shape[1]
        allowed = real
        if "length, length" in self.shape:
            allowed = real[:, None, :].expand(-1, length, -1)
            if self.causal:
                allowed = allowed & torch.ones_like(allowed[0]).tril()
            if self.shape == "(length, length)":
                allowed = allowed[0]  # one for all rows: padding has an argument of its own
            elif self.shape == "(batch, 1, length, length)":
                allowed = allowed[:, None]
        else:
            for _ in range(self.shape.count("1")):
                allowed = allowed[:, None]
        if self.dtype.is_floating_point:
            return torch.zeros(allowed.shape, dtype=self.dtype, device=real.device).masked_fill(
                ~allowed, -torch.inf
            )
        return (allowed if self.true_is_real else ~allowed).to(self.dtype)

    @property
    def is_inverted(self) -> bool:
        """Tell whether the mask has the name that tokenizers use (1 at real tokens) but the
        opposite meaning."""
        return self.argument.endswith("attention_mask") and not (self.true_is_real or self.causal)

    def given_to(self, model: nn.Module, real: Tensor, n_queries: int | None = None) -> Tensor:
        """Return the mask of these tokens; a float mask is in the model's precision, as kernels
        want it. With `n_queries`, a causal mask has only these last rows, because earlier tokens
        are in a cache."""
        mask = self.of(real)
        if mask.is_floating_point():
            mask = mask.to(next(model.parameters()).dtype)
        return mask if n_queries is None or not self.causal else mask[..., -n_queries:, :]

    def __str__(self) -> str:
        if self.shape == "(batch,) lengths":
            return f"{self.argument}=… {self.shape}"
        if self.dtype.is_floating_point:
            return f"{self.argument}=… {self.shape}, added to scores: 0 or -inf"
        meaning = "real" if self.true_is_real else "padding"
        if self.causal or not self.padding:
            meaning = "may look" if self.true_is_real else "may not look"
        return f"{self.argument}=… {self.shape}, true: {meaning}"
