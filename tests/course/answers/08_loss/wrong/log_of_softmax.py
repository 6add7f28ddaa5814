from torch import Tensor


def loss(logits: Tensor, targets: Tensor, pad_id: int, smoothing: float) -> tuple[Tensor, Tensor]:
    log_probs = logits.softmax(-1).log()
    real = targets != pad_id
    right = log_probs.gather(-1, targets[..., None])[..., 0]
    nats = -(1 - smoothing) * right - smoothing * log_probs.mean(-1)
    return nats[real].sum(), real.sum()
