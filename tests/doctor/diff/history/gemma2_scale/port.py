"""Gemma 2 that scales by the width over the number of heads, which is not the size of a head."""

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
        x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)
        return x * (1.0 + self.weight)


def rope(x):
    d, t = x.shape[-1], x.shape[-2]
    angles = torch.outer(torch.arange(t).float(), 10000 ** (-torch.arange(0, d, 2).float() / d))
    cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
    x1, x2 = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-x2, x1], dim=-1) * sin


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.n_head, self.n_kv = config.num_attention_heads, config.num_key_value_heads
        self.d_head, width = config.head_dim, config.hidden_size
        self.scale = (width // self.n_head) ** -0.5
        self.q_proj = nn.Linear(width, self.n_head * self.d_head, bias=False)
        self.k_proj = nn.Linear(width, self.n_kv * self.d_head, bias=False)
        self.v_proj = nn.Linear(width, self.n_kv * self.d_head, bias=False)
        self.o_proj = nn.Linear(self.n_head * self.d_head, width, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        q = rope(self.q_proj(x).view(b, t, self.n_head, self.d_head).transpose(1, 2))
        k = rope(self.k_proj(x).view(b, t, self.n_kv, self.d_head).transpose(1, 2))
        v = self.v_proj(x).view(b, t, self.n_kv, self.d_head).transpose(1, 2)
        k, v = (part.repeat_interleave(self.n_head // self.n_kv, dim=1) for part in (k, v))
        future = torch.ones(t, t, dtype=torch.bool).triu(1)
        scores = q @ k.transpose(2, 3) * self.scale
        scores = 50.0 * torch.tanh(scores / 50.0)
        y = scores.masked_fill(future, -torch.inf).softmax(dim=-1) @ v
        return self.o_proj(y.transpose(1, 2).reshape(b, t, -1))


class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, inner = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        gate = F.gelu(self.gate_proj(x), approximate="tanh")
        return self.down_proj(gate * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.self_attn, self.mlp = Attention(config), MLP(config)
        for name in (
            "input_layernorm",
            "post_attention_layernorm",
            "pre_feedforward_layernorm",
            "post_feedforward_layernorm",
        ):
            setattr(self, name, RMSNorm(config.hidden_size, config.rms_norm_eps))

    def forward(self, x):
        x = x + self.post_attention_layernorm(self.self_attn(self.input_layernorm(x)))
        h = self.mlp(self.pre_feedforward_layernorm(x))
        return x + self.post_feedforward_layernorm(h)


class Port(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.width = config.hidden_size
        self.embed_tokens = nn.Embedding(config.vocab_size, self.width)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(self.width, config.rms_norm_eps)

    def forward(self, tokens):
        x = self.embed_tokens(tokens) * self.width**0.5
        for layer in self.layers:
            x = layer(x)
        logits = self.norm(x) @ self.embed_tokens.weight.t()
        return 30.0 * torch.tanh(logits / 30.0)


def build():
    theirs = build_reference()
    port, state = Port(theirs.config), theirs.model.state_dict()
    port.load_state_dict(state)
    return port.eval()
