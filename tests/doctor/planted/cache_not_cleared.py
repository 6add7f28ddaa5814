"""The key-value cache lives on the attention modules and `generate` does not clear it first.
A user sees a right first answer, and later answers that speak of the earlier prompts."""

import torch
import torch.nn.functional as F
from torch import nn

EXPECTED = (
    "The cache survives between generate calls: the same prompt gives another answer next time."
)
KIND = "decoder"


class CachedAttention(nn.Module):
    def __init__(self, emb_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(emb_dim, 3 * emb_dim, bias=False)
        self.proj = nn.Linear(emb_dim, emb_dim)
        self.k_cache: torch.Tensor | None = None
        self.v_cache: torch.Tensor | None = None

    def reset(self):
        self.k_cache = self.v_cache = None

    def forward(self, x, use_cache):
        bs, n, d = x.shape
        qkv = self.qkv(x).view(bs, n, 3, self.num_heads, d // self.num_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        if use_cache:
            if self.k_cache is not None and self.v_cache is not None:
                k = torch.cat([self.k_cache, k], dim=2)
                v = torch.cat([self.v_cache, v], dim=2)
            self.k_cache, self.v_cache = k, v
        seen = k.size(2)
        mask = torch.ones(n, seen, dtype=torch.bool, device=x.device).tril(seen - n)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.proj(y.transpose(1, 2).reshape(bs, n, d))


class TransformerBlock(nn.Module):
    def __init__(self, emb_dim, num_heads):
        super().__init__()
        self.att = CachedAttention(emb_dim, num_heads)
        self.ff = nn.Sequential(
            nn.Linear(emb_dim, 4 * emb_dim), nn.GELU(), nn.Linear(4 * emb_dim, emb_dim)
        )
        self.norm1 = nn.LayerNorm(emb_dim)
        self.norm2 = nn.LayerNorm(emb_dim)

    def forward(self, x, use_cache=False):
        x = x + self.att(self.norm1(x), use_cache)
        return x + self.ff(self.norm2(x))


class GPTModel(nn.Module):
    def __init__(self, vocab_size=44, emb_dim=32, n_layers=2, n_heads=4, context=64, bug=False):
        super().__init__()
        self.context_length = context
        self.bug = bug
        self.tok_emb = nn.Embedding(vocab_size, emb_dim)
        self.pos_emb = nn.Embedding(context, emb_dim)
        self.trf_blocks = nn.ModuleList(
            [TransformerBlock(emb_dim, n_heads) for _ in range(n_layers)]
        )
        self.final_norm = nn.LayerNorm(emb_dim)
        self.out_head = nn.Linear(emb_dim, vocab_size, bias=False)

    def reset_kv_cache(self):
        for module in self.modules():
            if isinstance(module, CachedAttention):
                module.reset()

    def forward(self, in_idx, use_cache=False, start=0):
        pos = torch.arange(start, start + in_idx.shape[1], device=in_idx.device)
        x = self.tok_emb(in_idx) + self.pos_emb(pos)
        for block in self.trf_blocks:
            x = block(x, use_cache=use_cache)
        return self.out_head(self.final_norm(x))

    @torch.no_grad()
    def generate(self, idx, max_new_tokens=10):
        """Greedy, up to the context length."""
        if not self.bug:
            self.reset_kv_cache()
        steps = min(max_new_tokens, self.context_length - idx.shape[1])
        logits = self(idx, use_cache=True)
        for _ in range(steps):
            next_idx = logits[:, -1].argmax(dim=-1, keepdim=True)
            idx = torch.cat([idx, next_idx], dim=1)
            if idx.shape[1] < self.context_length:
                logits = self(next_idx, use_cache=True, start=idx.shape[1] - 1)
        if not self.bug:
            self.reset_kv_cache()
        return idx


def healthy() -> nn.Module:
    return GPTModel()


def broken() -> nn.Module:
    return GPTModel(bug=True)
