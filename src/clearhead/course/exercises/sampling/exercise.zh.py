"""练习 13：用温度、top-k、top-p 采样（第 10 章）

四个词元，logits 是 2、1、0、−1：

    温度 0.5                  0.865 0.117 0.016 0.002
    top_k = 2                 0.731 0.269 0     0
    top_p = 0.9               0.665 0.245 0.090 0

先用温度，再 top-k，再 top-p。top-p 看的是 top-k 剩下的、总和重新为 1 的分布：从概率最大的词元
起累加，直到总和达到 top_p 的那个词元为止，这些都留下。

把每个 blank() 换成你的代码并保存。检查：clearhead learn check
"""

import torch
from torch import Tensor

from clearhead.course import blank


def chances(logits: Tensor, *, temperature: float, top_k: int | None, top_p: float) -> Tensor:
    """logits (batch, vocab) → 每个词元的概率，按词表的次序。温度为 0 时，logit 最大的词元得 1
    （相等时取第一个）；其他情形下，同一行没有相等的 logits。top_k 可以是 None（全部词元），
    也可以大于词表；top_p = 1 时保留全部词元"""
    return blank()


def draw(probabilities: Tensor, u: Tensor) -> Tensor:
    """probabilities (batch, vocab)，u (batch,) 是 0 ≤ u < 1 的随机数 → (batch,) 编号：概率累加
    第一次超过 u 的那个词元。所以概率为 0 的词元永远抽不到，即使舍入让总和略小于 1"""
    return blank()
