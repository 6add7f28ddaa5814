import math

from torch import Tensor


def attention_weights(queries: Tensor, keys: Tensor) -> Tensor:
    scores = queries @ keys.transpose(-2, -1) / math.sqrt(queries.shape[-1])
    return scores.exp() / scores.exp().sum(-1, keepdim=True)
