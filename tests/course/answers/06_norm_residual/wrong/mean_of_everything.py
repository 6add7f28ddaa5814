from torch import Tensor


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return (x - x.mean()) / (x.var(unbiased=False) + eps).sqrt() * weight + bias
