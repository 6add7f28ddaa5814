import torch


def rotate(x, positions):
    d = x.shape[-1]
    angle = torch.outer(positions.double(), 10000 ** (-torch.arange(0, d, 2).double() / d))
    point = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(point * torch.polar(torch.ones_like(angle), angle)).flatten(-2).to(x)
