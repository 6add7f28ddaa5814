"""练习 17：按词元做梯度累积（第 8 章）

一批数据放不进内存，就分成微批来读。这一步的结果必须和一次读完相同：把所有词元的损失加起来，最后
只除一次，除以全部词元的个数。

    两个微批，损失是 {4} 和 {1, 1, 1}：   7 / 4 = 1.75，不是 (4 + 1) / 2 = 2.5

每个微批都调用 backward()，把梯度累加起来；它占的内存，在读下一个之前就释放了。词元一共多少，到最后
才知道，所以那时再除。除完之后裁剪：全部梯度合在一起的范数若超过 max_norm，就乘以
max_norm / 范数。最后优化器走一步。

把 blank() 换成你的代码并保存。检查：clearhead learn check
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.course import blank

SumLoss = Callable[[nn.Module, Any], tuple[Tensor, int]]


def accumulated_step(
    model: nn.Module,
    sum_loss: SumLoss,
    micro_batches: Sequence[Any],
    optimizer: torch.optim.Optimizer,
    max_norm: float,
) -> float:
    """sum_loss(model, micro_batch) → 各词元损失之和，以及词元的个数；个数可以是 0（但不会全是 0）。
    每个微批只调用一次。以前留下的梯度不算在内 → 全部词元的平均损失（更新之前的）"""
    return blank()
