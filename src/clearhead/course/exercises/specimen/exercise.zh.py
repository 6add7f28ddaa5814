"""练习 19：修好标本（第 7b 章）

一个小小的前置归一化解码器，用正弦位置编码，许多教程就是这样写的。
它能运行，能训练，却有五处缺陷，而且没有一行会抛异常。

1. 先给它体检：  clearhead doctor 19_specimen.py:build --kind decoder --quick
   把报告了错误或警告的检查项的名字写进 findings，例如 causal.leak 就写 "causal"。
2. 修好这五处。名字和参数都不要动：除了 forward 里的几行，什么都不用增减。修完再体检一次。

把 blank() 换成你的代码并保存。检查：clearhead learn check
"""

import math

import torch
from torch import Tensor, nn

from clearhead.course import blank


def findings() -> set[str]:
    """标本原样交给 doctor 时，报告了问题的检查项的名字"""
    return blank()


class SpecimenAttention(nn.Module):
    """因果自注意力"""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.d_model, self.n_heads = d_model, n_heads
        self.query, self.key, self.value, self.output = (
            nn.Linear(d_model, d_model) for _ in range(4)
        )

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[1]
        q, k, v = (
            layer(x).unflatten(2, (self.n_heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_model)
        future = torch.ones(n, n).triu(1)
        weights = (scores - future).softmax(dim=-1)
        return self.output((weights @ v).transpose(1, 2).flatten(2))


class SpecimenLayer(nn.Module):
    """前置归一化：x + sublayer(norm(x))，共两次"""

    def __init__(self, d_model: int, n_heads: int, p_dropout: float) -> None:
        super().__init__()
        self.attention = SpecimenAttention(d_model, n_heads)
        self.norm_1, self.norm_2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.up, self.down = nn.Linear(d_model, 4 * d_model), nn.Linear(4 * d_model, d_model)
        self.dropout = nn.Dropout(p_dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm_1(x)
        x = x + self.dropout(self.attention(x))
        x = self.norm_2(x)
        return x + self.dropout(self.down(self.up(x).relu()))


class Specimen(nn.Module):
    """解码器；嵌入要乘 √d_model，输出与嵌入共享权重"""

    def __init__(
        self, vocab_size: int, d_model: int, n_heads: int, n_layers: int, p_dropout: float
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, d_model)
        nn.init.normal_(self.tokens.weight, std=0.02)
        angles = torch.arange(128)[:, None] / 10000 ** (torch.arange(0, d_model, 2) / d_model)
        table = torch.stack((angles.sin(), angles.cos()), dim=2).flatten(1)
        self.register_buffer("positions", table)
        self.positions: Tensor
        self.dropout = nn.Dropout(p_dropout)
        self.layers = nn.ModuleList(
            SpecimenLayer(d_model, n_heads, p_dropout) for _ in range(n_layers)
        )
        self.norm = nn.LayerNorm(d_model)

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens (batch, length) → logits (batch, length, vocab)"""
        x = self.dropout(self.tokens(tokens) + self.positions[: tokens.shape[1]])
        x = self.dropout(x)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x) @ self.tokens.weight.T


def build() -> nn.Module:
    """供 doctor 使用"""
    return Specimen(50, 32, 4, 2, 0.1)
