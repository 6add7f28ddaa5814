import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.course.earlier import masked_weights


class CrossAttention(nn.Module):
    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model)
        self.output = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor, source: Tensor, allowed: Tensor) -> Tensor:
        d = x.shape[-1] // self.n_heads
        heads = []
        for h in range(self.n_heads):
            rows = slice(h * d, (h + 1) * d)
            q = F.linear(x, self.query.weight[rows], self.query.bias[rows])
            k = F.linear(source, self.key.weight[rows], self.key.bias[rows])
            v = F.linear(source, self.value.weight[rows], self.value.bias[rows])
            w = masked_weights(torch.matmul(q, k.mT) / math.sqrt(d), allowed)
            heads.append(w @ v)
        return self.output(torch.cat(heads, dim=-1))
