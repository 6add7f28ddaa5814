import torch
import torch.nn.functional as F
from torch import Tensor


def loss(logits: Tensor, targets: Tensor, pad_id: int, smoothing: float) -> tuple[Tensor, Tensor]:
    mean = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), label_smoothing=smoothing)
    return mean, torch.tensor(targets.numel())
