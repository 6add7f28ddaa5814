"""练习 6：层归一化与残差连接（第 5 章）

一个词元的向量 (1, 2, 3, 6)：均值 3，方差 3.5（除以 n，不是 n - 1），
归一化后是 (-1.069, -0.535, 0, 1.604)。

残差连接把子层算出的结果加回输入。论文在相加之后归一化（后置归一化）；
后来的模型大多只归一化子层读到的内容（前置归一化），x 本身不动。

把每个 blank() 换成你的代码并保存。检查：clearhead learn check
"""

from collections.abc import Callable

import torch
from torch import Tensor

from clearhead.course import blank


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """x (…, d)，weight (d)，bias (d) → (…, d)：均值 0，方差 1，再乘 weight 加 bias。

    eps 加在根号里的方差上。梯度也要对。"""
    return blank()


def residual(
    x: Tensor,
    sublayer: Callable[[Tensor], Tensor],
    norm: Callable[[Tensor], Tensor],
    placement: str,
) -> Tensor:
    """把 x 与子层的结果合在一起；placement 是 "pre" 或 "post"。"""
    return blank()
