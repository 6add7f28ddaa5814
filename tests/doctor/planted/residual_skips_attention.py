"""The feed-forward residual adds the layer's input, so what cross-attention added is thrown away.
A user sees a summariser that learns slowly: attention reaches the output through the ReLU only."""

import torch
import torch.nn.functional as F
from torch import nn

EXPECTED = "The residual after the feed-forward starts from the wrong tensor: attention is skipped."
KIND = "encoder-decoder"


class Attention(nn.Module):
    def __init__(self, hidden, heads, dropout):
        super().__init__()
        self.heads = heads
        self.proj_q = nn.Linear(hidden, hidden)
        self.proj_kv = nn.Linear(hidden, 2 * hidden)
        self.proj_out = nn.Linear(hidden, hidden)
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, memory, mask):
        batch, length, hidden = queries.shape
        q = self.proj_q(queries).view(batch, length, self.heads, -1).transpose(1, 2)
        kv = self.proj_kv(memory).view(batch, memory.shape[1], 2, self.heads, -1)
        k, v = kv.permute(2, 0, 3, 1, 4)
        logits = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        weights = self.dropout(logits.masked_fill(~mask, -1e9).softmax(-1))
        return self.proj_out((weights @ v).transpose(1, 2).reshape(batch, length, hidden))


class EncoderBlock(nn.Module):
    def __init__(self, hidden, heads, dropout):
        super().__init__()
        self.attn = Attention(hidden, heads, dropout)
        self.norm_a, self.norm_f = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x, mask):
        y = self.norm_a(x)
        h = x + self.attn(y, y, mask)
        return h + self.down(F.relu(self.up(self.norm_f(h))))


class DecoderBlock(nn.Module):
    def __init__(self, hidden, heads, dropout, bug):
        super().__init__()
        self.bug = bug
        self.attn = Attention(hidden, heads, dropout)
        self.cross = Attention(hidden, heads, dropout)
        self.norm_a, self.norm_c = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.norm_f = nn.LayerNorm(hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x, mask, memory, memory_mask):
        y = self.norm_a(x)
        h = x + self.attn(y, y, mask)
        h = h + self.cross(self.norm_c(h), memory, memory_mask)
        ff = self.down(F.relu(self.up(self.norm_f(h))))
        return x + ff if self.bug else h + ff


class Summariser(nn.Module):
    def __init__(self, vocab_size=48, hidden=32, heads=4, depth=2, dropout=0.1, bug=False):
        super().__init__()
        self.pad_id = 0
        self.embed = nn.Embedding(vocab_size, hidden)
        self.place = nn.Embedding(96, hidden)
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.ModuleList(EncoderBlock(hidden, heads, dropout) for _ in range(depth))
        self.decoder = nn.ModuleList(
            DecoderBlock(hidden, heads, dropout, bug) for _ in range(depth)
        )
        self.norm_enc, self.norm_dec = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.classifier = nn.Linear(hidden, vocab_size)

    def embedded(self, ids):
        return self.drop(self.embed(ids) + self.place(torch.arange(ids.shape[1]).to(ids)))

    def forward(self, article, summary):
        """`summary` starts with the start token; both are padded with 0 at the end."""
        memory_mask = (article != self.pad_id)[:, None, None]
        memory = self.embedded(article)
        for block in self.encoder:
            memory = block(memory, memory_mask)
        memory = self.norm_enc(memory)
        n = summary.shape[1]
        causal = torch.ones(n, n, dtype=torch.bool, device=summary.device).tril()
        x = self.embedded(summary)
        for block in self.decoder:
            x = block(x, causal, memory, memory_mask)
        return self.classifier(self.norm_dec(x))


def healthy() -> nn.Module:
    return Summariser()


def broken() -> nn.Module:
    return Summariser(bug=True)
