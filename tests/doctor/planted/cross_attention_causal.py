"""Cross-attention is built with self-attention's causal flag: target i sees sources 0 to i only.
A user sees translations whose first words are guesses, worst where word order differs."""

import torch
import torch.nn.functional as F
from torch import nn

EXPECTED = "Cross-attention is causal: target i attends to the first i + 1 source positions only."
KIND = "encoder-decoder"


class MHA(nn.Module):
    def __init__(self, dim, heads, causal=False):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.to_q = nn.Linear(dim, dim)
        self.to_k = nn.Linear(dim, dim)
        self.to_v = nn.Linear(dim, dim)
        self.to_out = nn.Linear(dim, dim)

    def forward(self, x, context=None, context_mask=None):
        context = x if context is None else context
        b, i, j = x.shape[0], x.shape[1], context.shape[1]
        q = self.to_q(x).view(b, i, self.heads, -1).transpose(1, 2)
        k = self.to_k(context).view(b, j, self.heads, -1).transpose(1, 2)
        v = self.to_v(context).view(b, j, self.heads, -1).transpose(1, 2)
        dots = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        fill = torch.finfo(dots.dtype).min
        if context_mask is not None:
            dots = dots.masked_fill(~context_mask[:, None, None, :], fill)
        if self.causal:
            future = torch.ones(i, j, dtype=torch.bool, device=x.device).triu(1)
            dots = dots.masked_fill(future, fill)
        return self.to_out((dots.softmax(-1) @ v).transpose(1, 2).reshape(b, i, -1))


class FF(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.lin1, self.lin2 = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x):
        return self.lin2(F.gelu(self.lin1(x)))


class EncBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.attn, self.ff = MHA(dim, heads), FF(dim)
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)

    def forward(self, x, mask):
        x = x + self.attn(self.ln1(x), context_mask=mask)
        return x + self.ff(self.ln2(x))


class DecBlock(nn.Module):
    def __init__(self, dim, heads, bug):
        super().__init__()
        self.attn = MHA(dim, heads, causal=True)
        self.cross = MHA(dim, heads, causal=bug)
        self.ff = FF(dim)
        self.ln1, self.ln2, self.ln3 = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.LayerNorm(dim)

    def forward(self, x, enc, enc_mask):
        x = x + self.attn(self.ln1(x))
        x = x + self.cross(self.ln2(x), context=enc, context_mask=enc_mask)
        return x + self.ff(self.ln3(x))


class XTransformer(nn.Module):
    def __init__(self, num_src=32, num_tgt=28, dim=32, depth=2, heads=4, max_len=48, bug=False):
        super().__init__()
        self.src_emb, self.tgt_emb = nn.Embedding(num_src, dim), nn.Embedding(num_tgt, dim)
        self.src_pos, self.tgt_pos = nn.Embedding(max_len, dim), nn.Embedding(max_len, dim)
        self.enc = nn.ModuleList(EncBlock(dim, heads) for _ in range(depth))
        self.dec = nn.ModuleList(DecBlock(dim, heads, bug) for _ in range(depth))
        self.enc_norm, self.dec_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.to_logits = nn.Linear(dim, num_tgt)

    def forward(self, src, tgt, src_mask=None):
        """`src_mask`: True for a token, False for padding."""
        enc = self.src_emb(src) + self.src_pos(torch.arange(src.shape[1], device=src.device))
        for block in self.enc:
            enc = block(enc, src_mask)
        enc = self.enc_norm(enc)
        x = self.tgt_emb(tgt) + self.tgt_pos(torch.arange(tgt.shape[1], device=tgt.device))
        for block in self.dec:
            x = block(x, enc, src_mask)
        return self.to_logits(self.dec_norm(x))


def healthy() -> nn.Module:
    return XTransformer()


def broken() -> nn.Module:
    return XTransformer(bug=True)
