"""练习 17，参考答案"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

SumLoss = Callable[[nn.Module, Any], tuple[Tensor, int]]


def accumulated_step(
    model: nn.Module,
    sum_loss: SumLoss,
    micro_batches: Sequence[Any],
    optimizer: torch.optim.Optimizer,
    max_norm: float,
) -> float:
    """先求和；只除一次，裁剪一次，更新一次。"""
    optimizer.zero_grad()
    total, n_tokens = 0.0, 0
    for micro_batch in micro_batches:
        loss, count = sum_loss(model, micro_batch)
        loss.backward()
        total, n_tokens = total + loss.item(), n_tokens + int(count)
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad /= n_tokens
    nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    return total / n_tokens
