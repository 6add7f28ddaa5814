"""练习 10：旋转位置编码（第 11 章）

还是练习 5 的 d/2 根指针，只是不再相加：把查询或键的第 2i 和 2i + 1 个特征看作平面上的一个点，
按它的位置 p 旋转角度 p / 10000^(2i/d)：

    (a, b)  →  (a · cos − b · sin, a · sin + b · cos)

位置 1 上的点 (1, 0) 变成 (0.540, 0.841)。两次旋转的角度可以相加，所以旋转后的查询和旋转后的键，
内积只取决于两者的距离。

把 blank() 换成你的代码并保存。检查：clearhead learn check
"""

import torch
from torch import Tensor

from clearhead.course import blank


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """x (batch, heads, length, d_head)，positions (length,) → 形状不变的新张量。第 t 个词元在
    位置 positions[t]，不一定等于 t：缓存里的词元保持原来的位置。位置没有上限。
    d_head 是偶数"""
    return blank()
