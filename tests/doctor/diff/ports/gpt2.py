"""GPT-2 as people write it: fused qkv, loops spelled out, a GELU by hand."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Norm(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x):
        mean = x.mean(dim=-1, keepdim=True)
        variance = (x - mean).pow(2).mean(dim=-1, keepdim=True)
        normed = (x - mean) / torch.sqrt(variance + self.eps)
        return normed * self.weight + self.bias


def gelu(x):
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
    return 0.5 * x * (1.0 + torch.tanh(inner))


class Attention(nn.Module):
    def __init__(self, width, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).split(width, dim=2)
        q = q.view(batch, length, self.n_heads, -1).transpose(1, 2)
        k = k.view(batch, length, self.n_heads, -1).transpose(1, 2)
        v = v.view(batch, length, self.n_heads, -1).transpose(1, 2)
        scores = q @ k.transpose(-2, -1)
        scores = scores / math.sqrt(k.size(-1))
        mask = torch.tril(torch.ones(length, length)).bool()
        scores = scores.masked_fill(~mask, float("-inf"))
        weights = F.softmax(scores, dim=-1)
        y = weights @ v
        y = y.transpose(1, 2).reshape(batch, length, width)
        return self.out(y)


class Block(nn.Module):
    def __init__(self, width, n_heads, inner):
        super().__init__()
        self.ln_1, self.ln_2 = Norm(width), Norm(width)
        self.attn = Attention(width, n_heads)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        h = self.up(self.ln_2(x))
        h = gelu(h)
        x = x + self.down(h)
        return x


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.n_positions, config.n_embd)
        self.blocks = nn.ModuleList(
            Block(config.n_embd, config.n_head, config.n_inner or 4 * config.n_embd)
            for _ in range(config.n_layer)
        )
        self.ln_f = Norm(config.n_embd)

    def forward(self, tokens):
        positions = torch.arange(tokens.shape[1])
        x = self.wte(tokens)
        x = x + self.wpe(positions)
        for block in self.blocks:
            x = block(x)
        x = self.ln_f(x)
        return x @ self.wte.weight.t()


@torch.no_grad()
def build(reference):
    port = GPT(reference.config)
    body = reference.transformer
    port.wte.weight.copy_(body.wte.weight)
    port.wpe.weight.copy_(body.wpe.weight)
    copy(port.ln_f, body.ln_f)
    for ours, theirs in zip(port.blocks, body.h):
        copy(ours.ln_1, theirs.ln_1)
        copy(ours.ln_2, theirs.ln_2)
        for mine, other in (
            (ours.attn.qkv, theirs.attn.c_attn),
            (ours.attn.out, theirs.attn.c_proj),
            (ours.up, theirs.mlp.c_fc),
            (ours.down, theirs.mlp.c_proj),
        ):
            mine.weight.copy_(other.weight.t())
            mine.bias.copy_(other.bias)
    return port.eval()


def copy(mine, other):
    mine.weight.copy_(other.weight)
    mine.bias.copy_(other.bias)
