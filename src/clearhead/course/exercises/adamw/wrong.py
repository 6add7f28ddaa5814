"""Wrong answers to exercise 12."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from clearhead.course.checking import Mistake, combined
from clearhead.course.exercises.adamw import solution

StepAnswer = Callable[..., tuple[Tensor, Tensor, Tensor]]


def _both(m: Tensor, v: Tensor, betas: tuple[float, float], step: int) -> tuple[Tensor, Tensor]:
    return m / (1 - betas[0] ** step), v / (1 - betas[1] ** step)


def _build(
    corrected: Any = _both,
    decayed: str = "beside",
    divisor: Any = lambda v, eps: v.sqrt() + eps,
    swapped: bool = False,
    share: str = "average",
    sign: int = 1,
) -> StepAnswer:
    """The step, with one or two things wrong."""

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
        betas = (betas[1], betas[0]) if swapped else betas
        g = g + decay * w if decayed == "in the gradient" else g
        kept = [1 - beta if share == "exchanged" else beta for beta in betas]
        m = kept[0] * m + (1 if share == "sum" else 1 - kept[0]) * g
        v = kept[1] * v + (1 - kept[1]) * g * g
        m_hat, v_hat = corrected(m, v, betas, step)
        shrinks = {"beside": lr * decay, "without lr": decay}.get(decayed, 0.0)
        return w - shrinks * w - sign * lr * m_hat / divisor(v_hat, eps), m, v

    return adamw_step


def _without_average(w: Tensor, g: Tensor, m: Tensor, v: Tensor, **settings: Any) -> Any:
    """RMSProp: the gradient itself is divided."""
    _, m, v = solution.adamw_step(w, g, m, v, **settings)
    v_hat = v / (1 - settings["betas"][1] ** settings["step"])
    lr, decay = settings["lr"], settings["decay"]
    return w - lr * decay * w - lr * g / (v_hat.sqrt() + settings["eps"]), m, v


def _corrected_kept(w: Tensor, g: Tensor, m: Tensor, v: Tensor, **settings: Any) -> Any:
    """The corrected averages are returned, and corrected again at the next step."""
    w, m, v = solution.adamw_step(w, g, m, v, **settings)
    return w, *_both(m, v, settings["betas"], settings["step"])


def _absolute(w: Tensor, g: Tensor, m: Tensor, v: Tensor, **settings: Any) -> Any:
    """v averages the size of the gradient, not its square."""
    b1, b2 = settings["betas"]
    m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g.abs()
    m_hat, v_hat = _both(m, v, settings["betas"], settings["step"])
    lr, decay = settings["lr"], settings["decay"]
    return w - lr * decay * w - lr * m_hat / (v_hat.sqrt() + settings["eps"]), m, v


WRONG_STEPS: dict[str, dict[str, Any]] = {
    "corrected": {
        "not corrected": lambda m, v, betas, step: (m, v),
        "m alone corrected": lambda m, v, betas, step: (m / (1 - betas[0] ** step), v),
        "step left out": lambda m, v, betas, step: _both(m, v, betas, 1),
    },
    "decayed": {
        "decay in the gradient": "in the gradient",
        "no decay": "none",
        "decay without lr": "without lr",
    },
    "divisor": {
        "no root": lambda v, eps: v + eps,
        "eps inside the root": lambda v, eps: (v + eps).sqrt(),
    },
    "swapped": {"betas swapped": True},
    "share": {"sum, not average": "sum", "beta and 1 − beta exchanged": "exchanged"},
    "sign": {"uphill": -1},
}
MISTAKES = [
    *combined("adamw_step", _build, WRONG_STEPS),
    Mistake("gradient without average", "adamw_step", _without_average),
    Mistake("corrected averages kept", "adamw_step", _corrected_kept),
    Mistake("no square", "adamw_step", _absolute),
]
