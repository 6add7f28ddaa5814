"""练习 4：多头交叉注意力（第 3、7 章）

查询来自 x，键和值来自 source，两者长度不同。
x 以自己为 source 时，forward(x, x, allowed) 就是自注意力。

`earlier` 里是前面练习的函数：你的通过了就用你的，否则用参考答案。

把 blank() 换成你的代码并保存。检查：clearhead learn check
"""

import math

import torch
from torch import Tensor, nn

from clearhead.course import blank
from clearhead.course.earlier import masked_weights, merge_heads, split_heads


class CrossAttention(nn.Module):
    """要你写的：x 对 source 的注意力。"""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model)
        self.output = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor, source: Tensor, allowed: Tensor) -> Tensor:
        """x (batch, query, d)，source (batch, key, d)，allowed：布尔 (batch, query 或 1, key)
        → (batch, query, d)。什么都不许看的查询，读到的是 0。"""
        return blank()
