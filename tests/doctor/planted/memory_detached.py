"""The encoder's output is detached before the decoder reads it.
A user sees a translator that trains, but plateaus early: the encoder keeps its random weights."""

import math

import torch
from torch import nn

EXPECTED = (
    "The encoder receives no gradient: its output is cut from the graph before cross-attention."
)
KIND = "encoder-decoder"


class MultiHeadedAttention(nn.Module):
    def __init__(self, h, d_model):
        super().__init__()
        self.h, self.d_k = h, d_model // h
        self.linears = nn.ModuleList([nn.Linear(d_model, d_model) for _ in range(4)])

    def forward(self, query, key, value, mask):
        nbatches = query.size(0)
        query, key, value = (
            lin(x).view(nbatches, -1, self.h, self.d_k).transpose(1, 2)
            for lin, x in zip(self.linears, (query, key, value))
        )
        scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(self.d_k)
        p_attn = scores.masked_fill(mask.unsqueeze(1) == 0, -1e9).softmax(dim=-1)
        x = torch.matmul(p_attn, value).transpose(1, 2).reshape(nbatches, -1, self.h * self.d_k)
        return self.linears[-1](x)


def feed_forward(d_model, d_ff):
    return nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))


class EncoderLayer(nn.Module):
    def __init__(self, d_model, h, d_ff):
        super().__init__()
        self.self_attn = MultiHeadedAttention(h, d_model)
        self.ff = feed_forward(d_model, d_ff)
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(2))

    def forward(self, x, mask):
        y = self.norms[0](x)
        x = x + self.self_attn(y, y, y, mask)
        return x + self.ff(self.norms[1](x))


class DecoderLayer(nn.Module):
    def __init__(self, d_model, h, d_ff):
        super().__init__()
        self.self_attn = MultiHeadedAttention(h, d_model)
        self.src_attn = MultiHeadedAttention(h, d_model)
        self.ff = feed_forward(d_model, d_ff)
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(3))

    def forward(self, x, memory, src_mask, tgt_mask):
        y = self.norms[0](x)
        x = x + self.self_attn(y, y, y, tgt_mask)
        x = x + self.src_attn(self.norms[1](x), memory, memory, src_mask)
        return x + self.ff(self.norms[2](x))


class EncoderDecoder(nn.Module):
    def __init__(self, src_vocab=30, tgt_vocab=34, n=2, d_model=32, d_ff=64, h=4, bug=False):
        super().__init__()
        self.pad = 0
        self.bug = bug
        self.src_embed = nn.Embedding(src_vocab, d_model)
        self.tgt_embed = nn.Embedding(tgt_vocab, d_model)
        self.positions = nn.Embedding(64, d_model)
        self.encoder = nn.ModuleList(EncoderLayer(d_model, h, d_ff) for _ in range(n))
        self.decoder = nn.ModuleList(DecoderLayer(d_model, h, d_ff) for _ in range(n))
        self.encoder_norm = nn.LayerNorm(d_model)
        self.decoder_norm = nn.LayerNorm(d_model)
        self.generator = nn.Linear(d_model, tgt_vocab)

    def embed(self, table, ids):
        return table(ids) + self.positions(torch.arange(ids.size(1), device=ids.device))

    def encode(self, src, src_mask):
        x = self.embed(self.src_embed, src)
        for layer in self.encoder:
            x = layer(x, src_mask)
        return self.encoder_norm(x)

    def forward(self, src, tgt):
        """`tgt` begins with the start token; the output at i scores the token after `tgt[i]`."""
        src_mask = (src != self.pad).unsqueeze(-2)
        subsequent = torch.ones(1, tgt.size(1), tgt.size(1), device=tgt.device).tril().bool()
        tgt_mask = (tgt != self.pad).unsqueeze(-2) & subsequent
        memory = self.encode(src, src_mask)
        if self.bug:
            memory = memory.detach()
        x = self.embed(self.tgt_embed, tgt)
        for layer in self.decoder:
            x = layer(x, memory, src_mask, tgt_mask)
        return self.generator(self.decoder_norm(x))


def healthy() -> nn.Module:
    return EncoderDecoder()


def broken() -> nn.Module:
    return EncoderDecoder(bug=True)
