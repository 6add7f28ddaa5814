import math

import torch
from torch import Tensor


def sinusoid(n_positions: int, d_model: int) -> Tensor:
    if d_model & 1:
        raise ValueError(d_model)
    rows = []
    for p in range(n_positions):
        row = []
        for i in range(d_model // 2):
            angle = p / 10000 ** (2 * i / d_model)
            row += [math.sin(angle), math.cos(angle)]
        rows.append(row)
    return torch.tensor(rows)
