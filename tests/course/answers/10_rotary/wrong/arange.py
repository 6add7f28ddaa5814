import torch


def rotate(x, positions):
    length, d = x.shape[-2:]
    angle = torch.arange(length)[:, None] / 10000 ** (torch.arange(0, d, 2) / d)
    a, b = x[..., ::2], x[..., 1::2]
    out = torch.empty_like(x)
    out[..., ::2] = a * angle.cos() - b * angle.sin()
    out[..., 1::2] = a * angle.sin() + b * angle.cos()
    return out
