import torch
from torch import Tensor


def loss(logits: Tensor, targets: Tensor, pad_id: int, smoothing: float) -> tuple[Tensor, Tensor]:
    total, count = logits.sum() * 0, 0
    for row, words in zip(logits, targets):
        for z, word in zip(row, words.tolist()):
            if word != pad_id:
                top = torch.logsumexp(z, 0)
                total = total + top - (1 - smoothing) * z[word] - smoothing * z.mean()
                count += 1
    return total, torch.tensor(count)
