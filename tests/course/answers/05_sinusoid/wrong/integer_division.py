import torch
from torch import Tensor


def sinusoid(n_positions: int, d_model: int) -> Tensor:
    if d_model % 2:
        raise ValueError("odd")
    i = torch.arange(d_model // 2)
    angle = torch.arange(n_positions)[:, None] / 10000.0 ** (2 * i // d_model)
    return torch.stack((angle.sin(), angle.cos()), 2).flatten(1)
