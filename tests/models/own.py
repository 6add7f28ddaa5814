"""Parts that are not clearhead's own, as somebody might write them."""

import torch
from torch import nn

from clearhead.config import ModelConfig
from clearhead.parts.attention import MultiHeadAttention


class SquaredReLU(nn.Module):
    """A feed-forward network with a buffer that is not saved."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.d_model, config.d_ff)
        self.down = nn.Linear(config.d_ff, config.d_model)
        self.register_buffer("power", torch.tensor(2.0), persistent=False)
        self.power: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)) ** self.power)


class ScaleNorm(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(config.d_model**0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * x / x.norm(dim=-1, keepdim=True).clamp(min=1e-5)


class HalfAttention(MultiHeadAttention):
    """Ours, with half of the output."""

    def __init__(self, config: ModelConfig, causal: bool) -> None:
        super().__init__(
            config.d_model,
            config.n_heads,
            n_kv_heads=config.kv_heads,
            d_head=config.head_width,
            causal=causal,
            bias=config.bias,
        )

    def forward(self, *arguments, **settings):
        return 0.5 * super().forward(*arguments, **settings)


class Ramp(nn.Module):
    """Positions: one learnt direction, the further the longer."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.direction = nn.Parameter(torch.full((config.d_model,), 0.01))

    def forward(self, positions: torch.Tensor) -> torch.Tensor:
        return positions[..., None] * self.direction


class NeverFilled(nn.Module):
    """A norm whose weight is whatever the memory held."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.d_model))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


class Forgetful(nn.Module):
    """A feed-forward network that keeps its result to itself."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.d_model, config.d_model)

    def forward(self, x: torch.Tensor) -> None:
        x = self.up(x)


OWN = {
    "attention": HalfAttention,
    "feed_forward": SquaredReLU,
    "norm": ScaleNorm,
    "positions": Ramp,
}
