"""练习 14：嵌入、权重共享与初始权重（第 6 章）

一张表 E，(vocab, d_model) 个数，有两个用处。一是嵌入：词元 t 的向量是第 t 行，乘 √d_model。
二是打分：向量 x 的 logits 是 x Eᵀ，不乘那个系数。

    d_model = 4，第 7 行是 (0.1, 0, 0, −0.2)：   embed(7) = (0.2, 0, 0, −0.4)

N 层模型的初始权重：每个矩阵取自 N(0, std²)。每层有两个矩阵往残差流里写，这里叫 output 和
down，标准差要再除以 √(2N)。偏置为 0，归一化的权重为 1。

把每个 blank() 换成你的代码并保存。检查：clearhead learn check
"""

import torch
from torch import Tensor, nn

from clearhead.course import blank


class TiedTable(nn.Module):
    """由你来写：一张表，既嵌入词元，也给词元打分"""

    def __init__(self, vocab_size: int, d_model: int) -> None:
        """表里的数取自 N(0, 0.02²)"""
        super().__init__()
        self.table = blank()

    def embed(self, tokens: Tensor) -> Tensor:
        """tokens (batch, length) → (batch, length, d_model)"""
        return blank()

    def score(self, x: Tensor) -> Tensor:
        """x (batch, length, d_model) → logits (batch, length, vocab)"""
        return blank()


def initialise(model: nn.Module, std: float, n_layers: int) -> None:
    """把模型的每个参数重新取值，就地修改。有两维的参数是矩阵。名字的结尾像
    `layers.0.down.weight` 这样；叫 bias 的都是偏置；其余只有一维的参数是归一化的权重"""
    return blank()
