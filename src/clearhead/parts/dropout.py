"""Dropout (section 5.4). On the CPU, it draws a quarter of the random numbers that `nn.Dropout`
draws."""

import torch
import torch.nn.functional as F
from torch import nn

from clearhead.shapes import Float, Tensor

# One 64-bit draw decides four elements, 16 bits each: a probability is rounded to 1/65536.
_LEVELS = 1 << 16


class Dropout(nn.Module):
    """Zero each element with probability p while training, and scale the rest by 1/(1 - p)."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return F.dropout(x, self.p)  # GPUs and compiled code draw fast without it
        return _FastDropout.apply(x, self.p)  # pyright: ignore[reportReturnType]

    def extra_repr(self) -> str:
        return f"p={self.p}"


class _FastDropout(torch.autograd.Function):
    """`F.dropout` asks torch's one-threaded generator for a number per element, which takes a
    quarter of a small model's step. This function takes a quarter of the numbers, and from the same
    generator, so that seeds and saved generator states work as usual."""

    @staticmethod
    def forward(ctx, x: Tensor, p: float) -> Tensor:  # pyright: ignore
        dropped = min(round(p * _LEVELS), _LEVELS - 1)
        draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device=x.device)
        draws.random_(-(2**63), None)  # every 64-bit pattern
        levels = draws.view(torch.int16)[: x.numel()].view(x.shape)
        keep = levels >= dropped - _LEVELS // 2  # int16 counts from -32768
        mask = keep.to(x.dtype).mul_(_LEVELS / (_LEVELS - dropped))
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:  # pyright: ignore
        (mask,) = ctx.saved_tensors
        return grad * mask, None
