"""Exercise 7: a decoder layer (chapter 7).

Three sublayers, three times the same pattern: x + sublayer(norm(x)).

1. self-attention: queries, keys and values from x. Nothing later may be seen, and no padding.
2. cross-attention: queries from x, keys and values from memory, the output of the encoder, which
   is normalised already.
3. feed-forward: up, ReLU, down.

`earlier` holds your own functions once their exercises have passed, and the reference until then.
CrossAttention takes (x, source, allowed) with allowed: Bool (batch, query or 1, key).

Replace each blank() and save. Check: clearhead learn check
"""

from torch import Tensor, nn

from clearhead.course import blank
from clearhead.course.earlier import CrossAttention, causal


class PreNormDecoderLayer(nn.Module):
    """What you write: a layer of the decoder."""

    def __init__(self, d_model: int, n_heads: int, d_ff: int) -> None:
        super().__init__()
        self.self_attention = CrossAttention(d_model, n_heads)
        self.cross_attention = CrossAttention(d_model, n_heads)
        self.up, self.down = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(d_model) for _ in range(3))

    def feed_forward(self, x: Tensor) -> Tensor:
        """(batch, target, d) → (batch, target, d)"""
        return blank()

    def forward(self, x: Tensor, memory: Tensor, real: Tensor, real_source: Tensor) -> Tensor:
        """x (batch, target, d), memory (batch, source, d), real: Bool (batch, target) and
        real_source: Bool (batch, source), False where a token is padding → (batch, target, d)"""
        return blank()
