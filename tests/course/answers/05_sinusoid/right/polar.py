import torch
from torch import Tensor


def sinusoid(n_positions: int, d_model: int) -> Tensor:
    if d_model % 2 == 1:
        raise ValueError("d_model must be even")
    speed = torch.exp(-torch.arange(0, d_model, 2) / d_model * torch.log(torch.tensor(10000.0)))
    angle = torch.outer(torch.arange(n_positions).float(), speed)
    turned = torch.polar(torch.ones_like(angle), angle)
    return torch.stack((turned.imag, turned.real), -1).reshape(n_positions, d_model)
