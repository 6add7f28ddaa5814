import math

import torch


def rotate(x, positions):
    out = torch.empty_like(x)
    for t, p in enumerate(positions.tolist()):
        for i in range(0, x.shape[-1], 2):
            a = p / 10000 ** (i / x.shape[-1])
            turn = torch.tensor([[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]])
            out[:, :, t, i : i + 2] = x[:, :, t, i : i + 2] @ turn.T.to(x)
    return out
