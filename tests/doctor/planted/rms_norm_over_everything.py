"""The hand-written RMSNorm takes its mean over the whole tensor, not over the last dimension.
A user sees logits that change with the rest of the batch, and a training loss that is too good."""

import torch
import torch.nn.functional as F
from torch import nn

EXPECTED = "The norm mixes positions and rows: logits depend on later tokens and on other rows."
KIND = "decoder"


class RMSNorm(nn.Module):
    def __init__(self, d, eps=1e-5, bug=False):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(d))
        self.eps = eps
        self.bug = bug

    def forward(self, x):
        ms = x.square().mean() if self.bug else x.square().mean(dim=-1, keepdim=True)
        return x / torch.sqrt(ms + self.eps) * self.scale


class MultiQueryAttention(nn.Module):
    def __init__(self, d, n_heads):
        super().__init__()
        self.n_heads, self.d_head = n_heads, d // n_heads
        self.q = nn.Linear(d, d, bias=False)
        self.kv = nn.Linear(d, 2 * self.d_head, bias=False)
        self.o = nn.Linear(d, d, bias=False)

    def forward(self, x):
        b, n, d = x.shape
        q = self.q(x).view(b, n, self.n_heads, self.d_head).transpose(1, 2)
        k, v = self.kv(x)[:, None].chunk(2, dim=-1)
        scores = q @ k.transpose(-1, -2) / self.d_head**0.5
        mask = torch.triu(torch.full((n, n), float("-inf"), device=x.device), diagonal=1)
        y = torch.softmax(scores + mask, dim=-1) @ v
        return self.o(y.transpose(1, 2).reshape(b, n, d))


class ParallelBlock(nn.Module):
    """Attention and feed-forward side by side (as in GPT-J and PaLM)."""

    def __init__(self, d, n_heads, bug):
        super().__init__()
        self.norm = RMSNorm(d, bug=bug)
        self.attn = MultiQueryAttention(d, n_heads)
        self.ff_in = nn.Linear(d, 4 * d, bias=False)
        self.ff_out = nn.Linear(4 * d, d, bias=False)

    def forward(self, x):
        y = self.norm(x)
        return x + self.attn(y) + self.ff_out(F.gelu(self.ff_in(y)))


class PaLM(nn.Module):
    def __init__(self, n_tokens=52, d=32, n_blocks=2, n_heads=4, n_ctx=64, bug=False):
        super().__init__()
        self.n_ctx = n_ctx
        self.tok = nn.Embedding(n_tokens, d)
        self.pos = nn.Parameter(torch.randn(n_ctx, d) * 0.02)
        self.blocks = nn.Sequential(*(ParallelBlock(d, n_heads, bug) for _ in range(n_blocks)))
        self.norm = RMSNorm(d, bug=bug)
        self.head = nn.Linear(d, n_tokens, bias=False)

    def forward(self, tokens):
        x = self.tok(tokens) + self.pos[: tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def healthy() -> nn.Module:
    return PaLM()


def broken() -> nn.Module:
    return PaLM(bug=True)
