"""A decoder of one layer, as the reference of small ports: each port changes one method."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH, HEADS, LENGTH, WORDS = 16, 2, 9, 23
D_HEAD = WIDTH // HEADS
BASE = 10_000.0


class Small(nn.Module):
    """Pre-norm, rotary halves, a window of four, a softcap, and a GELU; nothing is one or zero."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.segment = nn.Parameter(torch.zeros(WIDTH))
        self.norm, self.second, self.last = (nn.LayerNorm(WIDTH) for _ in range(3))
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.inner, self.outer = nn.Linear(WIDTH, 40), nn.Linear(40, WIDTH)
        self.head = nn.Linear(WIDTH, WORDS)
        generator = torch.Generator().manual_seed(7)
        with torch.no_grad():
            for parameter in self.parameters():
                noise = torch.randn(parameter.shape, generator=generator)
                parameter.copy_(0.3 * noise + (parameter == 1))

    def embedded(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.segment
        return x + self.places(torch.arange(tokens.shape[1]))

    def turns(self, length: int) -> tuple[Tensor, Tensor]:
        rates = BASE ** -(torch.arange(0, D_HEAD, 2).float() / D_HEAD)
        angles = torch.outer(torch.arange(length).float(), rates)
        angles = torch.cat([angles, angles], dim=-1)
        return angles.cos(), angles.sin()

    def rotated(self, x: Tensor) -> Tensor:
        cos, sin = self.turns(x.shape[-2])
        one, other = x.chunk(2, dim=-1)
        return x * cos + torch.cat([-other, one], dim=-1) * sin

    def heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (HEADS, D_HEAD)).transpose(1, 2)

    def allowed(self, length: int) -> Tensor:
        places = torch.arange(length)
        distance = places[:, None] - places[None, :]
        return (distance >= 0) & (distance < 4)

    def attended(self, x: Tensor) -> Tensor:
        q, k, v = (self.heads(layer(x)) for layer in (self.q, self.k, self.v))
        scores = self.rotated(q) @ self.rotated(k).mT / D_HEAD**0.5
        scores = 3 * torch.tanh(scores / 3)
        scores = scores.masked_fill(~self.allowed(x.shape[1]), -torch.inf)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    def normed(self, x: Tensor, norm: nn.LayerNorm) -> Tensor:
        return F.layer_norm(x, (WIDTH,), norm.weight, norm.bias)

    def layer(self, x: Tensor) -> Tensor:
        x = x + self.attended(self.normed(x, self.norm))
        return x + self.outer(F.gelu(self.inner(self.normed(x, self.second))))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.layer(self.embedded(tokens))
        x = self.normed(x, self.last)
        return self.head(x)


def tokens() -> Tensor:
    """What all of them are called with."""
    return torch.randint(WORDS, (2, LENGTH), generator=torch.Generator().manual_seed(3))
