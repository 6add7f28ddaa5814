import torch
from torch import Tensor, nn


class CrossAttention(nn.Module):
    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model)
        self.output = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor, source: Tensor, allowed: Tensor) -> Tensor:
        b, _, d = x.shape

        def cut(t: Tensor) -> Tensor:
            return t.reshape(b, -1, self.n_heads, d // self.n_heads).transpose(1, 2)

        q, k, v = cut(self.query(x)), cut(self.key(source)), cut(self.value(source))
        out = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=allowed.unsqueeze(1))
        return self.output(torch.flatten(out.transpose(1, 2), 2))
