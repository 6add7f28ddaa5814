import torch
from torch import Tensor


def attention_weights(queries: Tensor, keys: Tensor) -> Tensor:
    root = queries.shape[-1] ** 0.25
    return torch.bmm(queries / root, (keys / root).mT).softmax(2)


def attention(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    w = attention_weights(queries, keys)
    return (w[..., None] * values[:, None]).sum(2)
