from torch import Tensor, nn

from clearhead.course.earlier import CrossAttention, causal


class PreNormDecoderLayer(nn.Module):
    def __init__(self, d_model: int, n_heads: int, d_ff: int) -> None:
        super().__init__()
        self.self_attention = CrossAttention(d_model, n_heads)
        self.cross_attention = CrossAttention(d_model, n_heads)
        self.up, self.down = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(d_model) for _ in range(3))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.down(self.up(x).relu())

    def forward(self, x: Tensor, memory: Tensor, real: Tensor, real_source: Tensor) -> Tensor:
        past = causal(x.shape[1], x.shape[1]) & real[:, None]
        n = self.norm1(x)
        self.self_attention(n, n, past)
        x = x + self.self_attention(n, n, past)
        x = x + self.cross_attention(self.norm2(x), memory, real_source[:, None])
        return x + self.feed_forward(self.norm3(x))
