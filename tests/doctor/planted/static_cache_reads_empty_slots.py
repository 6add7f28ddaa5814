"""A preallocated cache is read to its end: while decoding, empty slots (zeros) take attention.
A user sees a faint, blurred generation that gets better the fuller the cache is."""

import math

import torch
import torch.nn.functional as F
from torch import nn

EXPECTED = (
    "Cached decoding attends to cache slots that were never written: it differs from full forward."
)
KIND = "decoder"


class Attention(nn.Module):
    cache_k: torch.Tensor
    cache_v: torch.Tensor

    def __init__(self, dim, n_heads, max_batch_size, max_seq_len, bug):
        super().__init__()
        self.n_heads, self.head_dim, self.bug = n_heads, dim // n_heads, bug
        self.wqkv = nn.Linear(dim, 3 * dim, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)
        shape = (max_batch_size, max_seq_len, n_heads, self.head_dim)
        self.register_buffer("cache_k", torch.zeros(shape), persistent=False)
        self.register_buffer("cache_v", torch.zeros(shape), persistent=False)

    def forward(self, x, start_pos):
        bsz, seqlen, dim = x.shape
        q, k, v = self.wqkv(x).view(bsz, seqlen, 3, self.n_heads, self.head_dim).unbind(2)
        if start_pos is not None:
            end = start_pos + seqlen
            self.cache_k[:bsz, start_pos:end] = k.detach()
            self.cache_v[:bsz, start_pos:end] = v.detach()
            if not self.bug:
                k, v = self.cache_k[:bsz, :end], self.cache_v[:bsz, :end]
            else:
                k, v = self.cache_k[:bsz], self.cache_v[:bsz]
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(self.head_dim)
        if seqlen > 1:
            mask = torch.full((seqlen, k.shape[1]), float("-inf"), device=x.device)
            scores = scores + torch.triu(mask, diagonal=(start_pos or 0) + 1)
        out = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)
        return self.wo(out.reshape(bsz, seqlen, dim))


class Block(nn.Module):
    def __init__(self, dim, n_heads, max_batch_size, max_seq_len, bug):
        super().__init__()
        self.attention = Attention(dim, n_heads, max_batch_size, max_seq_len, bug)
        self.w1 = nn.Linear(dim, 2 * dim, bias=False)
        self.w2 = nn.Linear(2 * dim, dim, bias=False)
        self.w3 = nn.Linear(dim, 2 * dim, bias=False)
        self.attention_norm = nn.RMSNorm(dim)
        self.ffn_norm = nn.RMSNorm(dim)

    def forward(self, x, start_pos):
        h = x + self.attention(self.attention_norm(x), start_pos)
        y = self.ffn_norm(h)
        return h + self.w2(F.silu(self.w1(y)) * self.w3(y))


class Transformer(nn.Module):
    def __init__(self, vocab_size=60, dim=32, n_layers=2, n_heads=4, max_seq_len=48, bug=False):
        super().__init__()
        self.max_seq_len = max_seq_len
        self.tok_embeddings = nn.Embedding(vocab_size, dim)
        self.pos_embeddings = nn.Embedding(max_seq_len, dim)
        self.layers = nn.ModuleList(
            Block(dim, n_heads, 32, max_seq_len, bug) for _ in range(n_layers)
        )
        self.norm = nn.RMSNorm(dim)
        self.output = nn.Linear(dim, vocab_size, bias=False)

    def forward(self, tokens, start_pos=None):
        """Without `start_pos` the cache is not used (training)."""
        first = start_pos or 0
        pos = torch.arange(first, first + tokens.shape[1], device=tokens.device)
        h = self.tok_embeddings(tokens) + self.pos_embeddings(pos)
        for layer in self.layers:
            h = layer(h, start_pos)
        return self.output(self.norm(h))

    @torch.no_grad()
    def generate(self, tokens, max_gen_len=8):
        """Greedy, at most 32 prompts of one length, up to `max_seq_len` tokens in all."""
        prev_pos = 0
        for cur_pos in range(tokens.shape[1], min(tokens.shape[1] + max_gen_len, self.max_seq_len)):
            logits = self(tokens[:, prev_pos:cur_pos], start_pos=prev_pos)
            tokens = torch.cat([tokens, logits[:, -1:].argmax(-1)], dim=1)
            prev_pos = cur_pos
        return tokens


def healthy() -> nn.Module:
    return Transformer()


def broken() -> nn.Module:
    return Transformer(bug=True)
