"""Muon (Jordan et al. 2024): the direction of each matrix's update is made orthogonal, so that no
direction of the gradient drowns the others."""

from collections.abc import Callable
from math import sqrt

import torch

from clearhead.shapes import Float, Tensor

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Coefficients of the polynomial that Jordan et al. chose. It moves every singular value close to 1
in few iterations, though not exactly to 1."""
ITERATIONS = 5
LIKE_ADAMW = 0.2
"""The root mean square of an AdamW update, divided by its learning rate (Liu et al. 2025)."""


def orthogonal(matrix: Float[Tensor, "rows columns"]) -> Float[Tensor, "rows columns"]:
    """Return the matrix with its singular values moved to about 1, by the iteration of Newton and
    Schulz, which needs only products."""
    first, second, third = COEFFICIENTS
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if is_tall else matrix
    x = x / x.norm().clamp(min=1e-7)  # now no singular value is above 1
    for _ in range(ITERATIONS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=second, alpha=third), x, beta=first)
    return x.T if is_tall else x


class Muon(torch.optim.Muon):
    """torch's Muon multiplies in bf16. A processor without instructions for bf16 needs up to 25
    times as long for that as for fp32, so on the CPU this class computes the same update in
    fp32."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update all matrices that have a gradient."""
        parameters = [p for group in self.param_groups for p in group["params"]]
        if closure is not None or any(p.device.type != "cpu" for p in parameters):
            return super().step(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)
        return None

    def _update(self, parameter: Tensor, group: dict[str, float]) -> None:
        state, gradient, momentum = self.state[parameter], parameter.grad, group["momentum"]
        assert gradient is not None
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(gradient)
        mean = state["momentum_buffer"].lerp_(gradient, 1 - momentum)
        direction = orthogonal(gradient.lerp(mean, momentum).float())
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        size = LIKE_ADAMW * sqrt(max(parameter.shape))
        parameter.add_(direction.to(parameter.dtype), alpha=-group["lr"] * size)
