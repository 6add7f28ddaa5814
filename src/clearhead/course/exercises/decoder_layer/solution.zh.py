"""练习 7，参考答案"""

from torch import Tensor, nn

from clearhead.course.earlier import CrossAttention, causal


class PreNormDecoderLayer(nn.Module):
    """自注意力、交叉注意力、前馈网络，各自都是 x + sublayer(norm(x))。"""

    def __init__(self, d_model: int, n_heads: int, d_ff: int) -> None:
        super().__init__()
        self.self_attention = CrossAttention(d_model, n_heads)
        self.cross_attention = CrossAttention(d_model, n_heads)
        self.up, self.down = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(d_model) for _ in range(3))

    def feed_forward(self, x: Tensor) -> Tensor:
        """两个线性层，中间是 ReLU。"""
        return self.down(self.up(x).relu())

    def forward(self, x: Tensor, memory: Tensor, real: Tensor, real_source: Tensor) -> Tensor:
        """两种注意力各用各的掩码。"""
        n = x.shape[1]
        past = causal(n, n) & real[:, None]
        normed = self.norm1(x)
        x = x + self.self_attention(normed, normed, past)
        x = x + self.cross_attention(self.norm2(x), memory, real_source[:, None])
        return x + self.feed_forward(self.norm3(x))
