"""练习 5，参考答案"""

import torch
from torch import Tensor


def sinusoid(n_positions: int, d_model: int) -> Tensor:
    """每根指针的正弦和余弦，成对相邻。"""
    if d_model % 2:
        raise ValueError(f"d_model={d_model} must be even")
    speed = 10000.0 ** -(torch.arange(0, d_model, 2) / d_model)
    angle = torch.arange(n_positions)[:, None] * speed
    return torch.stack((angle.sin(), angle.cos()), dim=2).flatten(1)
