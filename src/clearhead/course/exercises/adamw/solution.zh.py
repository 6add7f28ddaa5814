"""练习 12，参考答案"""

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
    """先求两个平均，再修正；衰减单独作用，不经过平均。"""
    m = betas[0] * m + (1 - betas[0]) * g
    v = betas[1] * v + (1 - betas[1]) * g * g
    m_hat = m / (1 - betas[0] ** step)
    v_hat = v / (1 - betas[1] ** step)
    return w - lr * decay * w - lr * m_hat / (v_hat.sqrt() + eps), m, v
