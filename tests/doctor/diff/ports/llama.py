"""Llama as people write it: rotary halves, grouped keys, a gated feed-forward layer."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return x * scale * self.weight


def rotary_table(length, d_head, base):
    frequencies = 1.0 / (base ** (torch.arange(0, d_head, 2).float() / d_head))
    positions = torch.arange(length).float()
    angles = torch.outer(positions, frequencies)
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    one, two = x[..., :half], x[..., half:]
    return torch.cat([one * cos - two * sin, two * cos + one * sin], dim=-1)


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.n_heads, self.n_kv = config.num_attention_heads, config.num_key_value_heads
        self.d_head = config.hidden_size // self.n_heads
        self.wq = nn.Linear(config.hidden_size, self.n_heads * self.d_head, bias=False)
        self.wk = nn.Linear(config.hidden_size, self.n_kv * self.d_head, bias=False)
        self.wv = nn.Linear(config.hidden_size, self.n_kv * self.d_head, bias=False)
        self.wo = nn.Linear(self.n_heads * self.d_head, config.hidden_size, bias=False)
        self.base = 10000.0

    def forward(self, x):
        batch, length, _ = x.shape
        q = self.wq(x).view(batch, length, self.n_heads, self.d_head).transpose(1, 2)
        k = self.wk(x).view(batch, length, self.n_kv, self.d_head).transpose(1, 2)
        v = self.wv(x).view(batch, length, self.n_kv, self.d_head).transpose(1, 2)
        cos, sin = rotary_table(length, self.d_head, self.base)
        q = rotate(q, cos, sin)
        k = rotate(k, cos, sin)
        groups = self.n_heads // self.n_kv
        k = k.repeat_interleave(groups, dim=1)
        v = v.repeat_interleave(groups, dim=1)
        scores = torch.einsum("bhqd,bhkd->bhqk", q, k) * self.d_head**-0.5
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(future, -1e9)
        weights = scores.softmax(dim=-1)
        y = torch.einsum("bhqk,bhkd->bqhd", weights, v)
        return self.wo(y.reshape(batch, length, -1))


class FeedForward(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x):
        gated = F.silu(self.gate(x))
        return self.down(gated * self.up(x))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attention, self.feed_forward = Attention(config), FeedForward(config)
        self.norm_1 = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.norm_2 = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x):
        h = self.norm_1(x)
        x = x + self.attention(h)
        h = self.norm_2(x)
        return x + self.feed_forward(h)


class Llama(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)
        return self.head(x)


@torch.no_grad()
def build(reference):
    port, body = Llama(reference.config), reference.model
    port.tokens.weight.copy_(body.embed_tokens.weight)
    port.norm.weight.copy_(body.norm.weight)
    port.head.weight.copy_(reference.lm_head.weight)
    for ours, theirs in zip(port.layers, body.layers):
        ours.norm_1.weight.copy_(theirs.input_layernorm.weight)
        ours.norm_2.weight.copy_(theirs.post_attention_layernorm.weight)
        ours.attention.wq.weight.copy_(theirs.self_attn.q_proj.weight)
        ours.attention.wk.weight.copy_(theirs.self_attn.k_proj.weight)
        ours.attention.wv.weight.copy_(theirs.self_attn.v_proj.weight)
        ours.attention.wo.weight.copy_(theirs.self_attn.o_proj.weight)
        ours.feed_forward.gate.weight.copy_(theirs.mlp.gate_proj.weight)
        ours.feed_forward.up.weight.copy_(theirs.mlp.up_proj.weight)
        ours.feed_forward.down.weight.copy_(theirs.mlp.down_proj.weight)
    return port.eval()


assert math  # bugs are planted in this source, and some of them need it
