"""练习 15：缓存（第 10 章）

解码器生成时，一次只来一个新词元。旧词元的键和值不会再变，所以留着，只算新词元的。新的查询可以看
留下的全部键，旧的新的都行，只是不能看后面的。3 个旧词元之后来 2 个新的：

    词元 3：  1 1 1 1 0
    词元 4：  1 1 1 1 1          按右下角对齐的下三角掩码

attention 是 CrossAttention（练习 4）：线性层叫 query、key、value、output，头数是 n_heads。
earlier 里是你自己写的、已经通过检查的函数。

把每个 blank() 换成你的代码并保存。检查：clearhead learn check
"""

import math

import torch
from torch import Tensor

from clearhead.course import blank
from clearhead.course.earlier import (
    CrossAttention,
    causal,
    masked_weights,
    merge_heads,
    split_heads,
)


class CachedAttention:
    """由你来写：记得住键和值的因果自注意力"""

    def __init__(self, attention: CrossAttention) -> None:
        self.attention = attention
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """x (batch, new, d_model)，接在以前各次调用的词元后面 → (batch, new, d_model)。
        四个线性层对每个词元都只算一次"""
        return blank()

    def reorder(self, rows: Tensor) -> None:
        """缓存的第 i 行换成原来的第 rows[i] 行，束搜索需要这样。同一行可以出现几次，也可以不
        出现；rows 可以比批次长，也可以短。第一次调用之前什么也不用做"""
        return blank()
