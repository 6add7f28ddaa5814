"""The tied output layer uses `embedding.weight.data`, so no gradient flows through the output side.
A user sees slower training and rare target words that never become likely."""

import torch
import torch.nn.functional as F
from torch import nn

EXPECTED = (
    "The tied output layer passes no gradient to the embedding: words not in the input never move."
)
KIND = "encoder-decoder"


class SublayerAttention(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.heads = heads
        self.in_q, self.in_k = nn.Linear(size, size), nn.Linear(size, size)
        self.in_v, self.out = nn.Linear(size, size), nn.Linear(size, size)

    def heads_of(self, x):
        return x.view(x.size(0), x.size(1), self.heads, -1).transpose(1, 2)

    def forward(self, q, kv, mask):
        q, k, v = (
            self.heads_of(f(x)) for f, x in ((self.in_q, q), (self.in_k, kv), (self.in_v, kv))
        )
        x = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(x.transpose(1, 2).flatten(2))


class EncoderLayer(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.self_attention = SublayerAttention(size, heads)
        self.feed_forward = nn.Sequential(
            nn.Linear(size, 2 * size), nn.ReLU(), nn.Linear(2 * size, size)
        )
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)

    def forward(self, x, mask):
        x = self.norm1(x + self.self_attention(x, x, mask))
        return self.norm2(x + self.feed_forward(x))


class DecoderLayer(EncoderLayer):
    def __init__(self, size, heads):
        super().__init__(size, heads)
        self.cross_attention = SublayerAttention(size, heads)
        self.norm_cross = nn.LayerNorm(size)

    def forward(self, x, mask, memory, memory_mask):  # pyright: ignore
        x = self.norm1(x + self.self_attention(x, x, mask))
        x = self.norm_cross(x + self.cross_attention(x, memory, memory_mask))
        return self.norm2(x + self.feed_forward(x))


class SharedVocabTransformer(nn.Module):
    """One embedding for source, target and output."""

    def __init__(self, vocab_size=50, size=32, heads=4, layers=2, max_length=64, padding_idx=0):
        super().__init__()
        self.padding_idx = padding_idx
        self.size = size
        self.embedding = nn.Embedding(vocab_size, size)
        nn.init.normal_(self.embedding.weight, std=size**-0.5)
        self.position = nn.Embedding(max_length, size)
        self.encoder_layers = nn.ModuleList(EncoderLayer(size, heads) for _ in range(layers))
        self.decoder_layers = nn.ModuleList(DecoderLayer(size, heads) for _ in range(layers))

    def output_weight(self):
        return self.embedding.weight

    def embed(self, ids):
        positions = torch.arange(ids.size(1), device=ids.device)
        return self.embedding(ids) * self.size**0.5 + self.position(positions)

    def forward(self, source, target):
        source_mask = (source != self.padding_idx)[:, None, None, :]
        n = target.size(1)
        causal = torch.ones(n, n, dtype=torch.bool, device=target.device).tril()
        memory = self.embed(source)
        for layer in self.encoder_layers:
            memory = layer(memory, source_mask)
        x = self.embed(target)
        for layer in self.decoder_layers:
            x = layer(x, causal, memory, source_mask)
        return F.linear(x, self.output_weight())


class BrokenSharedVocabTransformer(SharedVocabTransformer):
    def output_weight(self):
        return self.embedding.weight.data


def healthy() -> nn.Module:
    return SharedVocabTransformer()


def broken() -> nn.Module:
    return BrokenSharedVocabTransformer()
