import torch
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
        return torch.stack([self.down(self.up(x[:, i]).clamp_min(0)) for i in range(x.shape[1])], 1)

    def forward(self, x: Tensor, memory: Tensor, real: Tensor, real_source: Tensor) -> Tensor:
        done = []
        for i in range(len(x)):
            y, past = x[i : i + 1], causal(x.shape[1], x.shape[1])[None] & real[i]
            normed = self.norm1(y)
            y = self.self_attention(normed, normed, past) + y
            allowed = real_source[i : i + 1, None]
            y = self.cross_attention(self.norm2(y), memory[i : i + 1], allowed) + y
            done.append(self.feed_forward(self.norm3(y)) + y)
        return torch.cat(done)
