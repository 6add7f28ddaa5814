import torch
from torch import Tensor


def attention_weights(queries: Tensor, keys: Tensor) -> Tensor:
    s = torch.einsum("bqd,bkd->bqk", queries, keys) * queries.size(-1) ** -0.5
    return torch.softmax(s, -1)


def attention(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    return torch.einsum("bqk,bkw->bqw", attention_weights(queries, keys), values)
