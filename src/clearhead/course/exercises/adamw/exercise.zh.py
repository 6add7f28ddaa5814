"""练习 12：AdamW 的一步（第 8 章）

m 是梯度的滑动平均，v 是梯度平方的滑动平均。两者都从 0 开始，最初几步偏小；
第 t 步除以 1 − βᵗ 来修正：

    m ← β₁ m + (1 − β₁) g              m̂ = m / (1 − β₁ᵗ)
    v ← β₂ v + (1 − β₂) g²             v̂ = v / (1 − β₂ᵗ)
    w ← w − lr · decay · w − lr · m̂ / (√v̂ + eps)

本章的例子：w = 1，g = 0.1，β = (0.9, 0.95)，lr 为 0.001，decay 为 0.1。第一步之后
m = 0.01，v = 0.0005，w = 0.9989。

把 blank() 换成你的代码并保存。检查：clearhead learn check
"""

import torch
from torch import Tensor

from clearhead.course import blank


def adamw_step(
    w: Tensor,
    g: Tensor,
    m: Tensor,
    v: Tensor,
    *,
    step: int,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    decay: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """w、g、m、v 形状相同 → 新的 w、m 和 v；传入的张量保持不变。步数从 1 数起"""
    return blank()
