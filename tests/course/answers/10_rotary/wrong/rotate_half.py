import torch


def rotate(x, positions):
    d = x.shape[-1]
    angle = positions[:, None] / 10000 ** (torch.arange(0, d, 2) / d)
    angle = torch.cat((angle, angle), dim=-1)
    half = torch.cat((-x[..., d // 2 :], x[..., : d // 2]), dim=-1)
    return x * angle.cos() + half * angle.sin()
