from torch import Tensor


def masked_weights(scores: Tensor, allowed: Tensor) -> Tensor:
    return scores.masked_fill(~allowed, -20.0).softmax(-1) * allowed
