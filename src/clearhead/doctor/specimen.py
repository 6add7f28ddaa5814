"""A small Transformer as tutorials write it, to practise on. It runs and it trains, and it is wrong
in the ways of `DEFECTS`, which training does not show. The code is clearhead's own; the defects are
ones that we found in tutorials.

    from . import examine
    from .specimen import TutorialTransformer
    print(examine(TutorialTransformer(), kind="encoder-decoder", quick=True))

`DEFECTS` says which case of the doctor names each defect.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

DEFECTS = {
    "causal.one_sequence": "one sequence feeds encoder and decoder: the targets leak",
    "residual.after_norm": "x is overwritten by its norm before it is added again",
    "dropout.twice": "dropout on the embedding, and again in front of the layers",
    "embedding_scale.drowned": "small embeddings with sinusoids of size 1, without √d_model",
    "ignored_targets.token": "token 0 is ignored as a target, though it is a word",
    "ignored_targets.none_left": "a batch of ignored targets has the loss NaN",
    "greedy.train": "generate leaves dropout on",
    "temperature.zero": "temperature=0 divides by zero",
    "top_k.zero": "top_k=0 fails inside torch",
    "stops.no_setting": "generation cannot stop at an end-of-sequence token",
    "past_the_limit.crash": "generation runs past the table of positions",
}
"""For each case of the doctor, what is wrong."""


class TutorialAttention(nn.Module):
    """Attention as tutorials write it."""

    def __init__(self, d_model: int, n_heads: int, p_dropout: float, causal: bool) -> None:
        super().__init__()
        self.n_heads, self.causal = n_heads, causal
        self.query, self.key, self.value, self.out = (nn.Linear(d_model, d_model) for _ in range(4))
        self.dropout = nn.Dropout(p_dropout)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        batch, length, d_model = x.shape
        q, k, v = (
            layer(t).view(batch, -1, self.n_heads, d_model // self.n_heads).transpose(1, 2)
            for layer, t in ((self.query, x), (self.key, memory), (self.value, memory))
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        if self.causal:
            future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
            scores = scores.masked_fill(future, -torch.inf)
        mixed = self.dropout(scores.softmax(dim=-1)) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, d_model))


class TutorialFeedForward(nn.Module):
    """A feed-forward network as tutorials write it."""

    def __init__(self, d_model: int, p_dropout: float) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(d_model, 4 * d_model), nn.Linear(4 * d_model, d_model)
        self.dropout = nn.Dropout(p_dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.down(self.up(x).relu()))


class TutorialEncoderLayer(nn.Module):
    """An encoder layer as tutorials write it."""

    def __init__(self, d_model: int, n_heads: int, p_dropout: float) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.attention = TutorialAttention(d_model, n_heads, p_dropout, causal=False)
        self.feed_forward = TutorialFeedForward(d_model, p_dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm_1(x)  # the stream itself is gone: what is added below is its norm
        x = x + self.attention(x, x)
        x = self.norm_2(x)
        return x + self.feed_forward(x)


class TutorialDecoderLayer(nn.Module):
    """A decoder layer as tutorials write it."""

    def __init__(self, d_model: int, n_heads: int, p_dropout: float) -> None:
        super().__init__()
        self.norm_1, self.norm_2, self.norm_3 = (nn.LayerNorm(d_model) for _ in range(3))
        self.self_attention = TutorialAttention(d_model, n_heads, p_dropout, causal=True)
        self.cross_attention = TutorialAttention(d_model, n_heads, p_dropout, causal=False)
        self.feed_forward = TutorialFeedForward(d_model, p_dropout)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        x = self.norm_1(x)
        x = x + self.self_attention(x, x)
        x = self.norm_2(x)
        x = x + self.cross_attention(x, memory)
        x = self.norm_3(x)
        return x + self.feed_forward(x)


class TutorialTransformer(nn.Module):
    """An encoder-decoder that has all `DEFECTS`."""

    positions: Tensor

    def __init__(
        self,
        vocab_size: int = 100,
        d_model: int = 64,
        n_heads: int = 4,
        n_layers: int = 2,
        max_length: int = 64,
        p_dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.vocab_size, self.max_length = vocab_size, max_length
        self.tokens = nn.Embedding(vocab_size, d_model)
        nn.init.normal_(self.tokens.weight, std=0.02)
        self.register_buffer("positions", sinusoids(max_length, d_model))
        self.embedding_dropout, self.dropout = nn.Dropout(p_dropout), nn.Dropout(p_dropout)
        sizes = (d_model, n_heads, p_dropout)
        self.encoder = nn.ModuleList(TutorialEncoderLayer(*sizes) for _ in range(n_layers))
        self.decoder = nn.ModuleList(TutorialDecoderLayer(*sizes) for _ in range(n_layers))
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.head = nn.Linear(d_model, vocab_size, bias=False)

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        x = self.embedding_dropout(self.tokens(idx) + self.positions[: idx.shape[1]])
        memory = x = self.dropout(x)
        for layer in self.encoder:
            memory = layer(memory)
        memory = self.encoder_norm(memory)
        for layer in self.decoder:
            x = layer(x, memory)
        logits = self.head(self.decoder_norm(x))
        if targets is None:
            return logits, None
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=0)
        return logits, loss

    @torch.no_grad()
    def generate(
        self, idx: Tensor, max_new_tokens: int, temperature: float = 1.0, top_k: int | None = None
    ) -> Tensor:
        """Decode greedily, without a cache."""
        for _ in range(max_new_tokens):
            logits = self(idx)[0][:, -1] / temperature
            if top_k is not None:
                smallest = logits.topk(top_k).values[:, [-1]]
                logits = logits.masked_fill(logits < smallest, -torch.inf)
            idx = torch.cat((idx, torch.multinomial(logits.softmax(dim=-1), 1)), dim=1)
        return idx


def sinusoids(length: int, d_model: int) -> Tensor:
    """Return the table of sinusoidal positions."""
    angles = torch.arange(length)[:, None] / 10000 ** (torch.arange(0, d_model, 2) / d_model)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)
