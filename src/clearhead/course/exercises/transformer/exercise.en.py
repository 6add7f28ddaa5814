"""Exercise 20: your own Transformer (after "One whole Transformer on a page").

All that is missing is the way from ids to text. The parts are your own, where their exercises
have passed: attention (4), positions (5), the decoder layer (7), the loss (8), the table (14).

    source  7 5 9 <eos>                      what is read
    target  <bos> 7 5 9 <eos>                what is to be written: shift makes inputs and targets

Both are filled up with PAD on the right. At the end the checks train your model on random strings
and let it copy others; this takes a few seconds.

Replace each blank() and save. Check: clearhead learn check
"""

import torch
from torch import Tensor, nn

from clearhead.course import blank
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
        """tokens (batch, length) → (batch, length, d): the vectors of the table, which scales
        them, plus the sinusoid of each place."""
        return blank()

    def encode(self, source: Tensor) -> Tensor:
        """source (batch, length) → memory (batch, length, d): embed, the layers of the encoder,
        which must not look at PAD, and source_norm."""
        return blank()

    def decode(self, target: Tensor, memory: Tensor, source: Tensor) -> Tensor:
        """target (batch, length), memory and its source → logits (batch, length, vocab): embed,
        the layers of the decoder, each of which reads memory, target_norm, and the scores of
        the table."""
        return blank()

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Both stacks."""
        return self.decode(target, self.encode(source), source)


def training_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, source: Tensor, target: Tensor
) -> float:
    """source and target (batch, length) as above → the loss before the step: the mean over all
    targets that are not PAD, without smoothing. One step of the optimizer, with the gradient of
    this loss alone."""
    return blank()


def copy(model: CopyTransformer, source: Tensor, max_new: int) -> list[int]:
    """source (1, length) → the ids that the model generates after BOS, always the likeliest,
    even if it is PAD or BOS, up to EOS, which is left out, or max_new of them. The source is
    encoded once. No gradients."""
    return blank()
