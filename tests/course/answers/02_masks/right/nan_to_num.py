from torch import Tensor


def masked_weights(scores: Tensor, allowed: Tensor) -> Tensor:
    filled = scores.masked_fill(~allowed, float("-inf"))
    empty = ~allowed.any(-1, keepdim=True)
    return filled.masked_fill(empty, 0.0).softmax(-1).masked_fill(empty, 0.0).nan_to_num()
