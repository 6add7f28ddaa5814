import math

import torch
from torch import Tensor


def attention_weights(queries: Tensor, keys: Tensor) -> Tensor:
    scores = queries @ keys.transpose(-2, -1) / math.sqrt(queries.shape[-1])
    e = torch.exp(scores - scores.max(-1, keepdim=True).values)
    return e / e.sum(-1, keepdim=True)
