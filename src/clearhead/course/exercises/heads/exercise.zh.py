"""练习 3：拆头与合并（第 3 章）

两个宽度为 4 的词元，拆成两个头：

    词元               头 0         头 1
    [1 2 3 4]          [1 2]        [3 4]
    [5 6 7 8]          [5 6]        [7 8]

数字只挪位置：dtype 不变，x 在内存中的次序任意。

把每个 blank() 换成你的代码并保存。检查：clearhead learn check
"""

from torch import Tensor

from clearhead.course import blank


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """(batch, length, width) → (batch, heads, length, d_head)，其中 width = heads · d_head。"""
    return blank()


def merge_heads(x: Tensor) -> Tensor:
    """(batch, heads, length, d_head) → (batch, length, width)：原路返回。"""
    return blank()
