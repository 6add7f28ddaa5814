import math

from torch import Tensor


def attention_weights(queries: Tensor, keys: Tensor) -> Tensor:
    scores = queries @ keys.transpose(-2, -1) / math.sqrt(queries.shape[-1])
    e = (scores - scores.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True).detach()
