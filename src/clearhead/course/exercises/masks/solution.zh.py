"""练习 2，参考答案"""

import torch
from torch import Tensor


def causal(n_queries: int, n_keys: int) -> Tensor:
    """下三角，按右下角对齐。"""
    return torch.ones(n_queries, n_keys, dtype=torch.bool).tril(n_keys - n_queries)


def real_keys(real: Tensor) -> Tensor:
    """对每个查询都一样。"""
    return real[:, None, :]


def masked_weights(scores: Tensor, allowed: Tensor) -> Tensor:
    """在允许的键之间做 softmax；什么都不许看的行为 0。"""
    scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min / 2)
    weights = scores.softmax(dim=-1)
    return weights.masked_fill(~allowed.any(dim=-1, keepdim=True), 0.0)
