"""练习 3，参考答案"""

from torch import Tensor


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """先切宽度，再把头移到长度前面。"""
    return x.unflatten(2, (n_heads, -1)).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """原路返回。"""
    return x.transpose(1, 2).flatten(2)
