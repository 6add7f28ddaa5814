"""Exercise 20, the reference."""

import torch
from torch import Tensor, nn

from clearhead.course.earlier import (
    CrossAttention,
    PreNormDecoderLayer,
    TiedTable,
    initialise,
    loss,
    shift,
    sinusoid,
)

PAD, BOS, EOS = 0, 1, 2


class SourceLayer(nn.Module):
    """Pre-norm: self-attention over the real tokens, then the feed-forward network."""

    def __init__(self, d_model: int, n_heads: int, d_ff: int) -> None:
        super().__init__()
        self.attention = CrossAttention(d_model, n_heads)
        self.up, self.down = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        normed = self.norm1(x)
        x = x + self.attention(normed, normed, real[:, None])
        return x + self.down(self.up(self.norm2(x)).relu())


class CopyTransformer(nn.Module):
    """An encoder-decoder."""

    def __init__(
        self, vocab_size: int, d_model: int, n_heads: int, d_ff: int, n_layers: int
    ) -> None:
        super().__init__()
        sizes = d_model, n_heads, d_ff
        self.d_model = d_model
        self.table = TiedTable(vocab_size, d_model)
        self.encoder = nn.ModuleList(SourceLayer(*sizes) for _ in range(n_layers))
        self.decoder = nn.ModuleList(PreNormDecoderLayer(*sizes) for _ in range(n_layers))
        self.source_norm, self.target_norm = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        initialise(self, 0.1, n_layers)

    def embed(self, tokens: Tensor) -> Tensor:
        """What and where."""
        return self.table.embed(tokens) + sinusoid(tokens.shape[1], self.d_model)

    def encode(self, source: Tensor) -> Tensor:
        """Padding is hidden from every layer."""
        x, real = self.embed(source), source != PAD
        for layer in self.encoder:
            x = layer(x, real)
        return self.source_norm(x)

    def decode(self, target: Tensor, memory: Tensor, source: Tensor) -> Tensor:
        """Every layer reads the same memory."""
        x = self.embed(target)
        for layer in self.decoder:
            x = layer(x, memory, target != PAD, source != PAD)
        return self.table.score(self.target_norm(x))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Both stacks."""
        return self.decode(target, self.encode(source), source)


def training_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, source: Tensor, target: Tensor
) -> float:
    """A sum, divided once."""
    inputs, targets = shift(target)
    total, count = loss(model(source, inputs), targets, PAD, 0.0)
    optimizer.zero_grad()
    (total / count).backward()
    optimizer.step()
    return (total / count).item()


@torch.no_grad()
def copy(model: CopyTransformer, source: Tensor, max_new: int) -> list[int]:
    """Greedy, one token at a time."""
    memory, written = model.encode(source), [BOS]
    while len(written) <= max_new:
        logits = model.decode(torch.tensor([written]), memory, source)
        token = int(logits[0, -1].argmax())
        if token == EOS:
            break
        written.append(token)
    return written[1:]
