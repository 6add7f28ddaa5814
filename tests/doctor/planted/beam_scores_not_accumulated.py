"""Beam search ranks its hypotheses by the last token's log-probability, not by the sum.
A user sees a beam of 4 give worse translations than greedy decoding."""

import torch
import torch.nn.functional as F
from torch import nn

EXPECTED = (
    "Beam search forgets earlier scores: its best hypothesis is not the most probable one it saw."
)
KIND = "encoder-decoder"
PAD, BOS, EOS = 0, 1, 2


class Attn(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))

    def forward(self, x, ctx, allowed):
        q, k, v = (
            f(y).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for f, y in ((self.q, x), (self.k, ctx), (self.v, ctx))
        )
        return self.o(F.scaled_dot_product_attention(q, k, v, allowed).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, d, heads, cross=False):
        super().__init__()
        self.attn, self.cross = Attn(d, heads), Attn(d, heads) if cross else None
        self.ff = nn.Sequential(nn.Linear(d, 2 * d), nn.ReLU(), nn.Linear(2 * d, d))
        self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(3 if cross else 2))

    def forward(self, x, allowed, memory=None, memory_allowed=None):
        y = self.norms[0](x)
        x = x + self.attn(y, y, allowed)
        if self.cross is not None:
            x = x + self.cross(self.norms[1](x), memory, memory_allowed)
        return x + self.ff(self.norms[-1](x))


class Translator(nn.Module):
    def __init__(self, n_src=30, n_tgt=30, d=32, heads=4, layers=2, max_len=64, bug=False):
        super().__init__()
        self.bug, self.max_len = bug, max_len
        self.src, self.tgt = nn.Embedding(n_src, d), nn.Embedding(n_tgt, d)
        self.pos = nn.Embedding(max_len, d)
        self.enc = nn.ModuleList(Layer(d, heads) for _ in range(layers))
        self.dec = nn.ModuleList(Layer(d, heads, cross=True) for _ in range(layers))
        self.enc_norm, self.dec_norm = nn.LayerNorm(d), nn.LayerNorm(d)
        self.out = nn.Linear(d, n_tgt)

    def encode(self, src):
        allowed = (src != PAD)[:, None, None, :]
        x = self.src(src) + self.pos(torch.arange(src.shape[1], device=src.device))
        for layer in self.enc:
            x = layer(x, allowed)
        return self.enc_norm(x), allowed

    def decode(self, tgt, memory, memory_allowed):
        n = tgt.shape[1]
        causal = torch.ones(n, n, dtype=torch.bool, device=tgt.device).tril()
        x = self.tgt(tgt) + self.pos(torch.arange(n, device=tgt.device))
        for layer in self.dec:
            x = layer(x, causal, memory, memory_allowed)
        return self.out(self.dec_norm(x))

    def forward(self, src, tgt):
        return self.decode(tgt, *self.encode(src))

    @torch.no_grad()
    def beam_search(self, src, beam_size=4, max_len=12):
        """One source (1, length); the best hypothesis, from BOS on, and its log-probability."""
        memory, allowed = self.encode(src)
        beams = torch.full((1, 1), BOS, device=src.device)
        scores = torch.zeros(1, device=src.device)
        for _ in range(min(max_len, self.max_len - 1)):
            n = len(beams)
            logits = self.decode(beams, memory.expand(n, -1, -1), allowed.expand(n, -1, -1, -1))
            log_probs = logits[:, -1].log_softmax(-1)
            ended = (beams[:, 1:] == EOS).any(dim=1)
            log_probs[ended] = float("-inf")  # an ended beam goes on with PAD at no cost
            log_probs[ended, PAD] = 0.0
            total = log_probs if self.bug else scores[:, None] + log_probs
            scores, flat = total.flatten().topk(min(beam_size, total.numel()))
            row, token = flat // total.shape[1], flat % total.shape[1]
            beams = torch.cat([beams[row], token[:, None]], dim=1)
            if (beams[:, 1:] == EOS).any(dim=1).all():
                break
        return beams[scores.argmax()], scores.max()


def healthy() -> nn.Module:
    return Translator()


def broken() -> nn.Module:
    return Translator(bug=True)
