"""Exercise 7, the reference."""

from torch import Tensor, nn

from clearhead.course.earlier import CrossAttention, causal


class PreNormDecoderLayer(nn.Module):
    """Self-attention, cross-attention, feed-forward, each on x + sublayer(norm(x))."""

    def __init__(self, d_model: int, n_heads: int, d_ff: int) -> None:
        super().__init__()
        self.self_attention = CrossAttention(d_model, n_heads)
        self.cross_attention = CrossAttention(d_model, n_heads)
        self.up, self.down = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(d_model) for _ in range(3))

    def feed_forward(self, x: Tensor) -> Tensor:
        """Two linear layers with ReLU between them."""
        return self.down(self.up(x).relu())

    def forward(self, x: Tensor, memory: Tensor, real: Tensor, real_source: Tensor) -> Tensor:
        """Each mask goes to its own attention."""
        n = x.shape[1]
        past = causal(n, n) & real[:, None]
        normed = self.norm1(x)
        x = x + self.self_attention(normed, normed, past)
        x = x + self.cross_attention(self.norm2(x), memory, real_source[:, None])
        return x + self.feed_forward(self.norm3(x))
