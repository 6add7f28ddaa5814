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
    """True if the caller's mask hides the future as well as padding."""
    always: bool = False
    """True if the mask is passed in every call: without it, the model cannot be called, or is not
    causal."""
    padding: bool = True
    """True if the mask hides padding; if not, it is only causal."""

    def of(self, real: Tensor) -> Tensor:
        """Return the mask for `real`, which is (batch, length)."""
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
        """Return the mask of these tokens. A float mask has the model's precision, because kernels
        need that. With `n_queries`, a causal mask has only that many last rows, because earlier
        tokens are in a cache."""
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
