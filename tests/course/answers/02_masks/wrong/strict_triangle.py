import torch
from torch import Tensor


def causal(n_queries: int, n_keys: int) -> Tensor:
    return torch.ones(n_queries, n_keys).bool().tril(n_keys - n_queries - 1)
