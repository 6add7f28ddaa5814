"""练习 8：错位与损失（第 8 章）

解码器读一句话，在每个位置预测下一个词元：

    词元   <bos> 我   喜欢 你 <eos>
    输入   <bos> 我   喜欢 你
    目标   我    喜欢 你   <eos>

这里 <bos> 是 1，<eos> 是 2，填充是 0（由 pad_id 传入）。损失返回总和与个数：
一批数据分成几块时，先各自相加，最后统一除以目标总数。

把每个 blank() 换成你的代码并保存。检查：clearhead learn check
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.course import blank


def shift(tokens: Tensor) -> tuple[Tensor, Tensor]:
    """tokens (batch, length) → 输入和目标，都是 (batch, length - 1)"""
    return blank()


def loss(logits: Tensor, targets: Tensor, pad_id: int, smoothing: float) -> tuple[Tensor, Tensor]:
    """logits (batch, length, vocab)，targets (batch, length) → 真实目标的交叉熵之和与目标个数，
    两者都是张量。标签平滑从每个目标的概率中拿出比例 smoothing，均分给整个词表。"""
    return blank()
