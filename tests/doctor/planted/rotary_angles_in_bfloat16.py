"""The rotary angles are computed in bfloat16, where 256 and 257 are the same position.
A user sees good short texts and ever worse long ones; neighbouring tokens change places."""

import torch
import torch.nn.functional as F
from torch import nn

EXPECTED = "Positions are computed in bfloat16: distant positions cannot be told apart."
KIND = "decoder"


def precompute_freqs_cis(dim, end, theta=10000.0, dtype=torch.float32):
    freqs = 1.0 / (theta ** (torch.arange(0, dim, 2)[: dim // 2].float() / dim))
    t = torch.arange(end, dtype=dtype)
    freqs = torch.outer(t, freqs.to(dtype)).float()
    return torch.polar(torch.ones_like(freqs), freqs)


def apply_rotary_emb(xq, xk, freqs_cis):
    xq_ = torch.view_as_complex(xq.float().reshape(*xq.shape[:-1], -1, 2))
    xk_ = torch.view_as_complex(xk.float().reshape(*xk.shape[:-1], -1, 2))
    freqs_cis = freqs_cis[None, :, None, :]
    xq_out = torch.view_as_real(xq_ * freqs_cis).flatten(3)
    xk_out = torch.view_as_real(xk_ * freqs_cis).flatten(3)
    return xq_out.type_as(xq), xk_out.type_as(xk)


class Block(nn.Module):
    def __init__(self, dim, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.norm1 = nn.RMSNorm(dim, eps=1e-5)
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim, bias=False)
        self.norm2 = nn.RMSNorm(dim, eps=1e-5)
        self.gate_up = nn.Linear(dim, 4 * dim, bias=False)
        self.down = nn.Linear(2 * dim, dim, bias=False)

    def forward(self, x, freqs_cis):
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.n_heads, -1).unbind(2)
        q, k = apply_rotary_emb(q, k, freqs_cis)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, n, d))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class LongLlama(nn.Module):
    freqs_cis: torch.Tensor

    def __init__(self, vocab_size=40, dim=32, n_layers=2, n_heads=2, max_seq_len=512, bug=False):
        super().__init__()
        self.max_seq_len = max_seq_len
        self.embed = nn.Embedding(vocab_size, dim)
        self.blocks = nn.ModuleList(Block(dim, n_heads) for _ in range(n_layers))
        self.norm = nn.RMSNorm(dim, eps=1e-5)
        self.head = nn.Linear(dim, vocab_size, bias=False)
        dtype = torch.bfloat16 if bug else torch.float32
        freqs_cis = precompute_freqs_cis(dim // n_heads, max_seq_len, dtype=dtype)
        self.register_buffer("freqs_cis", freqs_cis, persistent=False)

    def forward(self, idx):
        x = self.embed(idx)
        freqs_cis = self.freqs_cis[: idx.shape[1]]
        for block in self.blocks:
            x = block(x, freqs_cis)
        return self.head(self.norm(x))


def healthy() -> nn.Module:
    return LongLlama()


def broken() -> nn.Module:
    return LongLlama(bug=True)
