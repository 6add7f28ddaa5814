import math

from torch import Tensor, nn

from clearhead.course.earlier import masked_weights, split_heads


class CrossAttention(nn.Module):
    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model)
        self.output = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor, source: Tensor, allowed: Tensor) -> Tensor:
        q = split_heads(self.query(x), self.n_heads)
        k = split_heads(self.key(source), self.n_heads)
        v = split_heads(self.value(source), self.n_heads)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        weights = masked_weights(scores, allowed[:, None])
        return self.output((weights @ v).transpose(1, 2).view(*x.shape))
