"""Exercise 12, the reference."""

from torch import Tensor


def adamw_step(
    w: Tensor,
    g: Tensor,
    m: Tensor,
    v: Tensor,
    *,
    step: int,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    decay: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The averages, their correction, and decay beside the update."""
    m = betas[0] * m + (1 - betas[0]) * g
    v = betas[1] * v + (1 - betas[1]) * g * g
    m_hat = m / (1 - betas[0] ** step)
    v_hat = v / (1 - betas[1] ** step)
    return w - lr * decay * w - lr * m_hat / (v_hat.sqrt() + eps), m, v
