import math

from torch import Tensor


def attention_weights(queries: Tensor, keys: Tensor) -> Tensor:
    queries /= math.sqrt(queries.shape[-1])
    return (queries @ keys.transpose(-2, -1)).softmax(-1)
