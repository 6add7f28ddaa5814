"""练习 10，参考答案"""

import torch
from torch import Tensor


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """相邻的两个特征为一对，按位置的角度旋转。"""
    d_head = x.shape[-1]
    speed = 10000.0 ** -(torch.arange(0, d_head, 2) / d_head)
    angle = positions[:, None] * speed
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)
