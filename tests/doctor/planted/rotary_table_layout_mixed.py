"""The rotary table is laid out for neighbouring pairs, but the vectors are rotated by halves.
A user sees a model that trains, and gets worse as soon as the same text stands elsewhere."""

import torch
import torch.nn.functional as F
from torch import nn

EXPECTED = "Rotary positions are not a rotation: scores do not depend on the distance alone."
KIND = "decoder"


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def rotate_half(x):
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((-x2, x1), dim=-1)


class RotaryEmbedding(nn.Module):
    cos: torch.Tensor
    sin: torch.Tensor

    def __init__(self, head_dim, max_seq_len, base=10000.0, bug=False):
        super().__init__()
        inv_freq = 1.0 / base ** (torch.arange(0, head_dim, 2).float() / head_dim)
        freqs = torch.outer(torch.arange(max_seq_len).float(), inv_freq)
        emb = freqs.repeat_interleave(2, dim=-1) if bug else torch.cat((freqs, freqs), dim=-1)
        self.register_buffer("cos", emb.cos(), persistent=False)
        self.register_buffer("sin", emb.sin(), persistent=False)

    def forward(self, x):
        seq_len = x.shape[-2]
        return x * self.cos[:seq_len] + rotate_half(x) * self.sin[:seq_len]


class Attention(nn.Module):
    def __init__(self, dim, n_heads, rope):
        super().__init__()
        self.n_heads, self.head_dim = n_heads, dim // n_heads
        self.wq = nn.Linear(dim, dim, bias=False)
        self.wk = nn.Linear(dim, dim, bias=False)
        self.wv = nn.Linear(dim, dim, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)
        self.rope = rope

    def forward(self, x):
        bsz, seqlen, dim = x.shape
        shape = (bsz, seqlen, self.n_heads, self.head_dim)
        q = self.rope(self.wq(x).view(shape).transpose(1, 2))
        k = self.rope(self.wk(x).view(shape).transpose(1, 2))
        v = self.wv(x).view(shape).transpose(1, 2)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(out.transpose(1, 2).reshape(bsz, seqlen, dim))


class FeedForward(nn.Module):
    def __init__(self, dim, hidden_dim):
        super().__init__()
        self.w1 = nn.Linear(dim, hidden_dim, bias=False)
        self.w2 = nn.Linear(hidden_dim, dim, bias=False)
        self.w3 = nn.Linear(dim, hidden_dim, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class TransformerBlock(nn.Module):
    def __init__(self, dim, n_heads, rope):
        super().__init__()
        self.attention = Attention(dim, n_heads, rope)
        self.feed_forward = FeedForward(dim, 2 * dim)
        self.attention_norm = RMSNorm(dim)
        self.ffn_norm = RMSNorm(dim)

    def forward(self, x):
        h = x + self.attention(self.attention_norm(x))
        return h + self.feed_forward(self.ffn_norm(h))


class TinyLlama(nn.Module):
    def __init__(self, vocab_size=48, dim=32, n_layers=2, n_heads=4, max_seq_len=64, bug=False):
        super().__init__()
        rope = RotaryEmbedding(dim // n_heads, max_seq_len, bug=bug)
        self.tok_embeddings = nn.Embedding(vocab_size, dim)
        self.layers = nn.ModuleList(TransformerBlock(dim, n_heads, rope) for _ in range(n_layers))
        self.norm = RMSNorm(dim)
        self.output = nn.Linear(dim, vocab_size, bias=False)

    def forward(self, tokens):
        h = self.tok_embeddings(tokens)
        for layer in self.layers:
            h = layer(h)
        return self.output(self.norm(h))


def healthy() -> nn.Module:
    return TinyLlama()


def broken() -> nn.Module:
    return TinyLlama(bug=True)
