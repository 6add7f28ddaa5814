import numpy as np
import torch
from torch import Tensor


def causal(n_queries: int, n_keys: int) -> Tensor:
    return torch.from_numpy(np.tri(n_queries, n_keys, n_keys - n_queries, dtype=bool))


def real_keys(real: Tensor) -> Tensor:
    return real.reshape(len(real), 1, -1)
