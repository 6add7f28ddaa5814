"""Attention dropout is applied to the masked scores, before the softmax: a dropped -1e9 becomes 0.
A user sees a training loss that is too good (the future leaks) and a bad test loss."""

import math

import torch
import torch.nn.functional as F
from torch import nn

EXPECTED = (
    "In training mode the future leaks: dropout on the scores removes the causal mask in places."
)
KIND = "decoder"


class MultiHeadAttention(nn.Module):
    def __init__(self, num_heads, num_hiddens, dropout, bug=False):
        super().__init__()
        self.num_heads = num_heads
        self.w_q = nn.Linear(num_hiddens, num_hiddens)
        self.w_k = nn.Linear(num_hiddens, num_hiddens)
        self.w_v = nn.Linear(num_hiddens, num_hiddens)
        self.w_o = nn.Linear(num_hiddens, num_hiddens)
        self.dropout = nn.Dropout(dropout)
        self.bug = bug

    def transpose_qkv(self, x):
        return x.reshape(x.shape[0], x.shape[1], self.num_heads, -1).permute(0, 2, 1, 3)

    def forward(self, queries, keys, values, allowed):
        q = self.transpose_qkv(self.w_q(queries))
        k = self.transpose_qkv(self.w_k(keys))
        v = self.transpose_qkv(self.w_v(values))
        scores = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(allowed == 0, -1e9)
        if self.bug:
            weights = torch.softmax(self.dropout(scores), dim=-1)
        else:
            weights = self.dropout(torch.softmax(scores, dim=-1))
        return self.w_o(torch.matmul(weights, v).permute(0, 2, 1, 3).flatten(2))


class DecoderBlock(nn.Module):
    def __init__(self, num_hiddens, num_heads, dropout, bug):
        super().__init__()
        self.attention = MultiHeadAttention(num_heads, num_hiddens, dropout, bug)
        self.norm1 = nn.LayerNorm(num_hiddens)
        self.ffn1 = nn.Linear(num_hiddens, 64)
        self.ffn2 = nn.Linear(64, num_hiddens)
        self.norm2 = nn.LayerNorm(num_hiddens)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, allowed):
        y = self.norm1(x + self.dropout(self.attention(x, x, x, allowed)))
        return self.norm2(y + self.dropout(self.ffn2(F.relu(self.ffn1(y)))))


class CharTransformer(nn.Module):
    def __init__(self, vocab=30, num_hiddens=24, num_blks=2, num_heads=3, max_len=40, bug=False):
        super().__init__()
        self.max_len = max_len
        self.embedding = nn.Embedding(vocab, num_hiddens)
        self.pos_embedding = nn.Parameter(torch.randn(1, max_len, num_hiddens) * 0.1)
        self.blks = nn.ModuleList(
            DecoderBlock(num_hiddens, num_heads, 0.1, bug) for _ in range(num_blks)
        )
        self.dense = nn.Linear(num_hiddens, vocab)

    def forward(self, chars):
        steps = chars.shape[1]
        allowed = torch.tril(torch.ones(steps, steps, device=chars.device))
        x = self.embedding(chars) + self.pos_embedding[:, :steps]
        for blk in self.blks:
            x = blk(x, allowed)
        return self.dense(x)


def healthy() -> nn.Module:
    return CharTransformer()


def broken() -> nn.Module:
    return CharTransformer(bug=True)
