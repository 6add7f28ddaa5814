"""Parts that shipped studies put in the place of clearhead's."""

from torch import Tensor, nn

from clearhead.config import ModelConfig


class NoActivation(nn.Module):
    """The feed-forward network without its activation: two matrices that one could replace."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.d_model, config.d_ff, bias=config.bias)
        self.down = nn.Linear(config.d_ff, config.d_model, bias=config.bias)
        # As clearhead's own: what writes into the residual stream starts narrower.
        nn.init.normal_(self.up.weight, std=config.init_std)
        nn.init.normal_(self.down.weight, std=config.init_std * (2 * config.n_layers) ** -0.5)
        for layer in (self.up, self.down):
            if config.bias:
                nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.up(x))
