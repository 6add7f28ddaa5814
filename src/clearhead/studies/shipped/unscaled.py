"""An attention of one's own in a study: the scores are not divided by √d_head."""

import math

from torch import nn

from clearhead.config import ModelConfig
from clearhead.parts.attention import Heads, MultiHeadAttention
from clearhead.parts.positions import Rotation
from clearhead.shapes import Stream


class UnscaledAttention(MultiHeadAttention):
    """softmax(Q·Kᵀ)·V: equation 1 without its √d_k."""

    def __init__(self, config: ModelConfig, *, causal: bool) -> None:
        super().__init__(
            config.d_model,
            config.n_heads,
            n_kv_heads=config.kv_heads,
            d_head=config.head_width,
            causal=causal,
            bias=config.bias,
            p_dropout=config.p_attention_dropout,
        )
        # As clearhead's own: what writes into the residual stream starts narrower.
        for layer in (self.query, self.key, self.value):
            nn.init.normal_(layer.weight, std=config.init_std)
        nn.init.normal_(self.output.weight, std=config.init_std * (2 * config.n_layers) ** -0.5)
        for layer in (self.query, self.key, self.value, self.output):
            if config.bias:
                nn.init.zeros_(layer.bias)

    def queries_of(self, x: Stream, rotation: Rotation | None = None) -> Heads:
        """Times √d_head, by which the scores are divided later."""
        return super().queries_of(x, rotation) * math.sqrt(self.d_head)
