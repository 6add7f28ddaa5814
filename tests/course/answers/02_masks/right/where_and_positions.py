import torch
from torch import Tensor


def causal(n_queries: int, n_keys: int) -> Tensor:
    i = torch.arange(n_queries)[:, None] + n_keys - n_queries
    return torch.arange(n_keys) <= i


def real_keys(real: Tensor) -> Tensor:
    return real.unsqueeze(-2)


def masked_weights(scores: Tensor, allowed: Tensor) -> Tensor:
    s = torch.where(allowed, scores, torch.full_like(scores, -1e30))
    return s.softmax(-1) * allowed
