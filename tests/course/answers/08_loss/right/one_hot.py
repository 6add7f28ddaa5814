import torch.nn.functional as F
from torch import Tensor


def loss(logits: Tensor, targets: Tensor, pad_id: int, smoothing: float) -> tuple[Tensor, Tensor]:
    v, real = logits.shape[-1], (targets != pad_id).float()
    wanted = F.one_hot(targets, v) * (1 - smoothing) + smoothing / v
    return -(wanted * logits.log_softmax(-1)).sum(-1).mul(real).sum(), real.sum().long()


def shift(tokens: Tensor) -> tuple[Tensor, Tensor]:
    return tokens.narrow(1, 0, tokens.shape[1] - 1), tokens.narrow(1, 1, tokens.shape[1] - 1)
