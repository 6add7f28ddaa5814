"""练习 2：掩码（第 2 章）

掩码是布尔张量，True 表示“可以看”。行是查询，列是键：

    causal(4, 4)          causal(1, 4)：一个新查询；三个已缓存的键，加上它自己的
    1 . . .
    1 1 . .               1 1 1 1
    1 1 1 .
    1 1 1 1

把每个 blank() 换成你的代码并保存。检查：clearhead learn check
"""

import torch
from torch import Tensor

from clearhead.course import blank


def causal(n_queries: int, n_keys: int) -> Tensor:
    """布尔 (query, key)：查询能看见自己和之前的键。

    最后一个查询对应最后一个键；查询比键多时，最前面的查询什么都看不见。"""
    return blank()


def real_keys(real: Tensor) -> Tensor:
    """real：布尔 (batch, key)，填充处为 False → 布尔 (batch, 1, key)。"""
    return blank()


def masked_weights(scores: Tensor, allowed: Tensor) -> Tensor:
    """scores (…, query, key)，allowed：可广播到它的布尔张量 → 权重 (…, query, key)。

    只在允许的键之间做 softmax，分数再大再小（−2000、2000）都要对，梯度也要对；
    一个查询什么都不许看时，输出为 0。不要改动传入的分数。"""
    return blank()
