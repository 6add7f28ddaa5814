"""The relative distance has the wrong sign, so the clamp puts every visible key in bucket 0.
A user sees a model that is weak at word order: only one entry of the learnt bias ever trains."""

import torch
from torch import nn

EXPECTED = "The relative position bias is the same for all visible keys: distance has no effect."
KIND = "decoder"


class RelativePositionBias(nn.Module):
    def __init__(self, num_buckets, heads, bug=False):
        super().__init__()
        self.num_buckets = num_buckets
        self.bias = nn.Embedding(num_buckets, heads)
        self.bug = bug

    def forward(self, n):
        pos = torch.arange(n, device=self.bias.weight.device)
        context, memory = pos[:, None], pos[None, :]
        distance = memory - context if self.bug else context - memory
        bucket = distance.clamp(min=0, max=self.num_buckets - 1)
        return self.bias(bucket).permute(2, 0, 1)


class T5Attention(nn.Module):
    def __init__(self, d_model, d_kv, heads):
        super().__init__()
        self.heads, self.d_kv = heads, d_kv
        self.q = nn.Linear(d_model, heads * d_kv, bias=False)
        self.k = nn.Linear(d_model, heads * d_kv, bias=False)
        self.v = nn.Linear(d_model, heads * d_kv, bias=False)
        self.o = nn.Linear(heads * d_kv, d_model, bias=False)

    def forward(self, x, position_bias):
        def shape(states):
            return states.view(x.size(0), -1, self.heads, self.d_kv).transpose(1, 2)

        scores = shape(self.q(x)) @ shape(self.k(x)).transpose(3, 2) * self.d_kv**-0.5
        weights = (scores + position_bias).softmax(dim=-1)
        return self.o((weights @ shape(self.v(x))).transpose(1, 2).flatten(2))


class T5Block(nn.Module):
    def __init__(self, d_model, d_kv, heads, d_ff, dropout):
        super().__init__()
        self.attn = T5Attention(d_model, d_kv, heads)
        self.wi = nn.Linear(d_model, d_ff, bias=False)
        self.wo = nn.Linear(d_ff, d_model, bias=False)
        self.norm_attn = nn.RMSNorm(d_model, eps=1e-6)
        self.norm_ff = nn.RMSNorm(d_model, eps=1e-6)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, position_bias):
        x = x + self.dropout(self.attn(self.norm_attn(x), position_bias))
        return x + self.dropout(self.wo(self.dropout(self.wi(self.norm_ff(x)).relu())))


class RelativeDecoder(nn.Module):
    """Decoder-only, with T5's relative bias (one table for all layers) and no other positions."""

    def __init__(self, vocab=42, d_model=32, d_kv=8, heads=4, layers=2, dropout=0.1, bug=False):
        super().__init__()
        self.shared = nn.Embedding(vocab, d_model)
        self.relative = RelativePositionBias(16, heads, bug)
        self.blocks = nn.ModuleList(
            T5Block(d_model, d_kv, heads, 64, dropout) for _ in range(layers)
        )
        self.final_norm = nn.RMSNorm(d_model, eps=1e-6)
        self.lm_head = nn.Linear(d_model, vocab, bias=False)

    def forward(self, ids):
        n = ids.size(1)
        future = torch.full((n, n), float("-inf"), device=ids.device).triu(1)
        position_bias = self.relative(n) + future
        x = self.shared(ids)
        for block in self.blocks:
            x = block(x, position_bias)
        return self.lm_head(self.final_norm(x))


def healthy() -> nn.Module:
    return RelativeDecoder()


def broken() -> nn.Module:
    return RelativeDecoder(bug=True)
