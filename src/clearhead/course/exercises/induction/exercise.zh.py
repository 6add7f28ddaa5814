"""练习 18：找出归纳头（第 13 章）

一串随机词元，后面再重复一遍。后半段除了重复，没有别的线索。归纳头从后半段的每个词元，看向同一词元
上次出现*之后*的那个位置：

    位置      0 1 2 3 4 5 6 7        周期 4
    词元      a b c d a b c d
    看向              1 2 3 4        查询是 4、5、6、7

前一词元头（previous-token head）从第一个以外的每个词元，看向它前面的那个。

把每个 blank() 换成你的代码并保存。检查：clearhead learn check
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from clearhead.course import blank


def repeated_texts(n_texts: int, period: int, vocab_size: int, seed: int) -> Tensor:
    """→ 编号 (n_texts, 2 · period)，从 0 到 vocab_size − 1：每段文本的前半段各自随机，后半段重复
    前半段。种子相同，文本相同；种子不同，文本不同。别处的随机数不受影响"""
    return blank()


def induction_scores(weights: Tensor, period: int) -> Tensor:
    """weights (batch, heads, query, key)，一层在这种文本上的权重 → (heads,)：归纳头所看的位置上的
    权重，对各段文本和后半段的查询取平均"""
    return blank()


def previous_scores(weights: Tensor) -> Tensor:
    """weights (batch, heads, query, key) → (heads,)：前一个词元上的权重，对各段文本和除第一个以外
    的查询取平均"""
    return blank()


def find_circuit(
    layers: Sequence[Tensor], period: int, threshold: float
) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """各层的权重，从第一层起 → 所有这样的一对：一个前一词元头，和一个在*更后面*的层里的归纳头，两者
    的得分都超过 threshold。头写作 (层, 头)。两个得分的乘积大的排在前面。没有相等的乘积"""
    return blank()
