"""练习 13，参考答案"""

import torch
from torch import Tensor


def chances(logits: Tensor, *, temperature: float, top_k: int | None, top_p: float) -> Tensor:
    """先遮住，再 softmax；top-p 按概率从大到小累加。"""
    if temperature == 0:
        best = logits.argmax(dim=1, keepdim=True)
        return torch.zeros_like(logits).scatter(1, best, 1.0)
    logits = logits / temperature
    if top_k is not None and top_k < logits.shape[1]:
        least = logits.topk(top_k, dim=1).values[:, -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    falling, order = logits.softmax(dim=1).sort(dim=1, descending=True)
    before = falling.cumsum(dim=1) - falling
    falling = falling.masked_fill((before >= top_p) & (top_p < 1), 0.0)
    kept = torch.zeros_like(falling).scatter(1, order, falling)
    return kept / kept.sum(dim=1, keepdim=True)


def draw(probabilities: Tensor, u: Tensor) -> Tensor:
    """u 按舍入后的总和缩放；再往后就取最后一个概率不为 0 的词元。"""
    summed = probabilities.double().cumsum(dim=1)
    above = summed > u[:, None].double() * summed[:, -1:]
    last = (summed < summed[:, -1:]).sum(dim=1)
    return torch.where(above.any(dim=1), above.int().argmax(dim=1), last)
