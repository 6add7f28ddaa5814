from torch import Tensor


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    b, n, w = x.shape
    return x.view(b, n, n_heads, w // n_heads).permute(0, 2, 1, 3)


def merge_heads(x: Tensor) -> Tensor:
    b, h, n, d = x.shape
    return x.permute(0, 2, 1, 3).contiguous().view(b, n, h * d)
