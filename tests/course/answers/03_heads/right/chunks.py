import torch
from torch import Tensor


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    return torch.stack(x.chunk(n_heads, dim=-1), dim=1)


def merge_heads(x: Tensor) -> Tensor:
    return torch.cat(list(x.unbind(1)), dim=-1)
