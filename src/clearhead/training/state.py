"""The counters of a run, which a checkpoint restores. Everything else about a step follows from the
recipe, the data and the number of the step."""

import math
import platform
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

from clearhead.config.checks import MOST
from clearhead.config.train import TrainConfig
from clearhead.training.step import LOWEST_SCALE, Update

# The rule and numbers are those of torch.amp.GradScaler. That class keeps the scale on the device
# to avoid waiting for the flag of an overflow. Here, a step waits once anyway, and a number on the
# host is just another counter in a checkpoint.
FIRST_SCALE, HIGHEST_SCALE = 2.0**16, 2.0**64
GROW_AFTER = 2000


@dataclass(frozen=True, kw_only=True)
class TrainState:
    """The counters of a run after its last step."""

    step: int = 0
    """Global batches seen, skipped ones too."""
    targets: int = 0
    """Target tokens so far."""
    skips: int = 0
    """Steps in a row, up to this one, whose loss or gradient was not finite."""
    best: float | None = None
    best_step: int | None = None
    stale: int = 0
    """Validations since the best one."""
    seconds: float = 0.0
    """Seconds spent training, over all restarts."""
    loss_scale: float = FIRST_SCALE
    """The loss scale of the next step (fp16 only)."""
    good_steps: int = 0
    """fp16 only: number of updates since the scale last changed; after a fixed number of updates,
    the scale is doubled."""
    overflows: int = 0
    """fp16 only: number of steps that were skipped because their gradient overflowed, over all
    restarts."""

    def after(self, update: Update) -> "TrainState":
        """Return the state after one more step."""
        counted = replace(
            self,
            step=self.step + 1,
            targets=self.targets + (update.n_targets if update.finite else 0),
            skips=0 if update.finite else self.skips + (not update.overflowed),
        )
        return counted if update.loss_scale is None else counted._rescaled(update)

    def _rescaled(self, update: Update) -> "TrainState":
        if update.overflowed:
            lower = max(LOWEST_SCALE, self.loss_scale / 2)
            return replace(self, loss_scale=lower, good_steps=0, overflows=self.overflows + 1)
        if not update.finite:
            return self
        if self.good_steps + 1 < GROW_AFTER:
            return replace(self, good_steps=self.good_steps + 1)
        return replace(self, loss_scale=min(HIGHEST_SCALE, 2 * self.loss_scale), good_steps=0)

    def validated(self, value: float, config: TrainConfig) -> "TrainState":
        """Return the state after a validation. A NaN is never the best."""
        sign = 1 if config.best_is == "lowest" else -1
        better = self.best is None or sign * value < sign * self.best
        if better and not math.isnan(value):
            return replace(self, best=value, best_step=self.step, stale=0)
        return replace(self, stale=self.stale + 1)


def read_state(values: dict[str, Any]) -> TrainState:
    """Read the counters of a checkpoint, which somebody else may have written. Raises ValueError or
    TypeError if they are not counters."""
    state = TrainState(**values)
    whole = {"step": state.step, "targets": state.targets, "skips": state.skips}
    whole |= {"stale": state.stale, "best_step": state.best_step or 0}
    whole |= {"good_steps": state.good_steps, "overflows": state.overflows}
    for name, value in whole.items():
        if type(value) is not int or not 0 <= value < MOST:
            raise ValueError(f"state.{name} is {value!r:.60}")
    for name, value in {"best": state.best or 0.0, "seconds": state.seconds}.items():
        if type(value) not in (int, float):
            raise ValueError(f"state.{name} is {value!r:.60}")
    scale = state.loss_scale
    if type(scale) is not float or not LOWEST_SCALE <= scale <= HIGHEST_SCALE:
        raise ValueError(f"state.loss_scale is {scale!r:.60}")
    if math.frexp(scale)[0] != 0.5:
        raise ValueError(f"state.loss_scale is {scale!r}, which is not a power of two")
    return state


def versions() -> dict[str, str]:
    """Return the versions of the libraries on which a step's numbers depend."""
    packages = ("clearhead", "torch", "numpy", "tokenizers")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}
