import torch
from torch import Tensor


def attention_weights(queries: Tensor, keys: Tensor) -> Tensor:
    n = keys.shape[1]
    eye = torch.eye(n, dtype=keys.dtype).expand(len(keys), n, n)
    return torch.nn.functional.scaled_dot_product_attention(queries, keys, eye)
