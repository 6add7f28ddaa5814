"""Grouped queries with tiled keys and values."""

import torch
import torch.nn.functional as F
from reference import build as build_reference
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


def rope(x, theta=10000.0):
    d, t = x.shape[-1], x.shape[-2]
    freqs = 1.0 / theta ** (torch.arange(0, d, 2).float() / d)
    angles = torch.outer(torch.arange(t).float(), freqs)
    cos, sin = angles.cos(), angles.sin()
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat([x1 * cos - x2 * sin, x2 * cos + x1 * sin], dim=-1)


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.n_head, self.n_kv = config.num_attention_heads, config.num_key_value_heads
        self.d_head = config.hidden_size // self.n_head
        self.wq = nn.Linear(config.hidden_size, self.n_head * self.d_head, bias=False)
        self.wk = nn.Linear(config.hidden_size, self.n_kv * self.d_head, bias=False)
        self.wv = nn.Linear(config.hidden_size, self.n_kv * self.d_head, bias=False)
        self.wo = nn.Linear(self.n_head * self.d_head, config.hidden_size, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        q = self.wq(x).view(b, t, self.n_head, self.d_head).transpose(1, 2)
        k = self.wk(x).view(b, t, self.n_kv, self.d_head).transpose(1, 2)
        v = self.wv(x).view(b, t, self.n_kv, self.d_head).transpose(1, 2)
        q, k = rope(q), rope(k)
        k = k.repeat(1, self.n_head // self.n_kv, 1, 1)
        v = v.repeat(1, self.n_head // self.n_kv, 1, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(y.transpose(1, 2).reshape(b, t, -1))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attention_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.attention = Attention(config)
        self.ffn_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.w1 = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.w2 = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)
        self.w3 = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        h = self.ffn_norm(x)
        return x + self.w2(F.silu(self.w1(h)) * self.w3(h))


class Port(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.tok_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.output = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, tokens):
        x = self.tok_embeddings(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x))


NAMES = {
    "self_attn.q_proj": "attention.wq",
    "self_attn.k_proj": "attention.wk",
    "self_attn.v_proj": "attention.wv",
    "self_attn.o_proj": "attention.wo",
    "mlp.gate_proj": "w1",
    "mlp.down_proj": "w2",
    "mlp.up_proj": "w3",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm",
    "model.embed_tokens": "tok_embeddings",
    "lm_head": "output",
}


def build():
    theirs = build_reference()
    state = {}
    for name, tensor in theirs.state_dict().items():
        for old, new in NAMES.items():
            name = name.replace(old, new)
        state[name.removeprefix("model.")] = tensor
    port = Port(theirs.config)
    port.load_state_dict(state)
    return port.eval()
