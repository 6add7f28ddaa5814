"""Grouped queries: the keys are repeated head by head, the values are tiled (0 1 0 1, not 0 0 1 1).
A user sees a trained checkpoint give nonsense, or a model that learns slowly and never says why."""

import math

import torch
from torch import nn

EXPECTED = (
    "Grouped-query attention pairs query heads with the keys of one group, the values of another."
)
KIND = "decoder"


class GroupedQueryAttention(nn.Module):
    def __init__(self, d_model, n_q_heads, n_kv_heads, bug=False):
        super().__init__()
        assert n_q_heads % n_kv_heads == 0
        self.n_q, self.n_kv = n_q_heads, n_kv_heads
        self.n_rep = n_q_heads // n_kv_heads
        self.hd = d_model // n_q_heads
        self.bug = bug
        self.w_q = nn.Linear(d_model, n_q_heads * self.hd, bias=False)
        self.w_k = nn.Linear(d_model, n_kv_heads * self.hd, bias=False)
        self.w_v = nn.Linear(d_model, n_kv_heads * self.hd, bias=False)
        self.w_o = nn.Linear(n_q_heads * self.hd, d_model, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        q = self.w_q(x).view(b, t, self.n_q, self.hd).transpose(1, 2)
        k = self.w_k(x).view(b, t, self.n_kv, self.hd).transpose(1, 2)
        v = self.w_v(x).view(b, t, self.n_kv, self.hd).transpose(1, 2)
        k = k.repeat_interleave(self.n_rep, dim=1)
        v = v.repeat(1, self.n_rep, 1, 1) if self.bug else v.repeat_interleave(self.n_rep, dim=1)
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.hd)
        future = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
        probs = scores.masked_fill(future, float("-inf")).softmax(dim=-1)
        return self.w_o((probs @ v).transpose(1, 2).reshape(b, t, -1))


class Layer(nn.Module):
    def __init__(self, d_model, n_q_heads, n_kv_heads, bug):
        super().__init__()
        self.ln_attn = nn.RMSNorm(d_model)
        self.attn = GroupedQueryAttention(d_model, n_q_heads, n_kv_heads, bug)
        self.ln_mlp = nn.RMSNorm(d_model)
        self.mlp = nn.Sequential(
            nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model)
        )

    def forward(self, x):
        x = x + self.attn(self.ln_attn(x))
        return x + self.mlp(self.ln_mlp(x))


class GQAModel(nn.Module):
    def __init__(self, n_vocab=45, d_model=32, n_layers=2, n_ctx=48, bug=False):
        super().__init__()
        self.n_ctx = n_ctx
        self.embed = nn.Embedding(n_vocab, d_model)
        self.pos_embed = nn.Embedding(n_ctx, d_model)
        self.layers = nn.ModuleList(Layer(d_model, 4, 2, bug) for _ in range(n_layers))
        self.ln_final = nn.RMSNorm(d_model)
        self.unembed = nn.Linear(d_model, n_vocab, bias=False)

    def forward(self, token_ids):
        pos = torch.arange(token_ids.shape[1], device=token_ids.device)
        x = self.embed(token_ids) + self.pos_embed(pos)
        for layer in self.layers:
            x = layer(x)
        return self.unembed(self.ln_final(x))


def healthy() -> nn.Module:
    return GQAModel()


def broken() -> nn.Module:
    return GQAModel(bug=True)
