"""练习 11：分组查询（第 11 章）

键和值的头比查询的头少：相邻的几个查询头共用一个。4 个查询头、2 个键值头时

    查询头 0、1  看  键头 0 和值头 0
    查询头 2、3  看  键头 1 和值头 1

参数只少一点，缓存却按组的大小成倍减少。

把每个 blank() 换成你的代码并保存。检查：clearhead learn check
"""

import torch
from torch import Tensor

from clearhead.course import blank


def grouped_attention(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """queries (batch, heads, query, d_head)，keys 和 values (batch, kv_heads, key, d_head) →
    (batch, heads, query, d_head)。没有掩码。kv_heads 不能整除 heads 时抛出 ValueError"""
    return blank()


def cache_bytes(
    n_layers: int, d_model: int, n_heads: int, n_kv_heads: int, length: int, bytes_each: int
) -> int:
    """一段有 length 个词元的文本，各层的键和值一共占多少字节；bytes_each 是一个数的字节数
    （bf16 为 2）。一个头宽 d_model / n_heads"""
    return blank()
