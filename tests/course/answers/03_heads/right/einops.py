import einops
from torch import Tensor


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    return einops.rearrange(x, "b n (h d) -> b h n d", h=n_heads)


def merge_heads(x: Tensor) -> Tensor:
    return einops.rearrange(x, "b h n d -> b n (h d)")
