"""练习 1：注意力（第 1 章）

每个查询把自己的注意力分给各个键。第 1 章的数字：查询“水果”(2, 2, 0, 0)，
键“苹果”(1, 1, 0, 0)、“香蕉”(1, 0.6, 0, 0)、“椅子”(-1, -1, 0, 0)；
内积为 4、3.2、-4；d = 4 时，分数为 2、1.6、-2，权重为 0.592、0.397、0.011。

训练要用到你所写代码的梯度，所以请全程用 torch；分数可能大到 200。

把每个 blank() 换成你的代码并保存。检查：clearhead learn check
"""

import math

import torch
from torch import Tensor

from clearhead.course import blank


def attention_weights(queries: Tensor, keys: Tensor) -> Tensor:
    """queries (batch, query, d), keys (batch, key, d) → 权重 (batch, query, key)。

    softmax(q·k / √d)，在各个键之间分配。"""
    return blank()


def attention(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """values (batch, key, width) → (batch, query, width)：值的加权和。"""
    return blank()
