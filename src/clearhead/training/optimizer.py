"""AdamW, with decay where it belongs."""

from typing import TypedDict

import torch
from torch import nn


class ParameterGroup(TypedDict):
    params: list[nn.Parameter]
    weight_decay: float


def parameter_groups(model: nn.Module, weight_decay: float) -> list[ParameterGroup]:
    """Matrices decay; biases and norms, whose size means something, do not. Each parameter stands
    in exactly one group, once, however many names it has."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]


def adamw(
    model: nn.Module,
    *,
    lr: float,
    weight_decay: float = 0.1,
    betas: tuple[float, float] = (0.9, 0.95),
) -> torch.optim.AdamW:
    """Fused where the device has a fused kernel, which CPUs and GPUs have."""
    groups = [dict(group) for group in parameter_groups(model, weight_decay)]
    fused = all(p.device.type in ("cpu", "cuda", "mps") for p in model.parameters())
    return torch.optim.AdamW(groups, lr=lr, betas=betas, fused=fused)
