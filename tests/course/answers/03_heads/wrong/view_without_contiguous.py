from torch import Tensor


def merge_heads(x: Tensor) -> Tensor:
    batch, heads, length, d_head = x.shape
    return x.transpose(1, 2).view(batch, length, heads * d_head)
