"""The counters of a run, which a checkpoint restores. Everything else about a step follows from the
recipe, the data and the step's number."""

import math
import platform
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

from clearhead.config.checks import MOST
from clearhead.config.train import TrainConfig
from clearhead.training.step import Update


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

    def after(self, update: Update) -> "TrainState":
        """The state after one more step."""
        return replace(
            self,
            step=self.step + 1,
            targets=self.targets + (update.n_targets if update.finite else 0),
            skips=0 if update.finite else self.skips + 1,
        )

    def validated(self, value: float, config: TrainConfig) -> "TrainState":
        """The state after a validation. A NaN is never the best."""
        sign = 1 if config.best_is == "lowest" else -1
        better = self.best is None or sign * value < sign * self.best
        if better and not math.isnan(value):
            return replace(self, best=value, best_step=self.step, stale=0)
        return replace(self, stale=self.stale + 1)


def read_state(values: dict[str, Any]) -> TrainState:
    """The counters of a checkpoint, which somebody else may have written. Raises ValueError or
    TypeError if they are none."""
    state = TrainState(**values)
    whole = {"step": state.step, "targets": state.targets, "skips": state.skips}
    whole |= {"stale": state.stale, "best_step": state.best_step or 0}
    for name, value in whole.items():
        if type(value) is not int or not 0 <= value < MOST:
            raise ValueError(f"state.{name} is {value!r:.60}")
    for name, value in {"best": state.best or 0.0, "seconds": state.seconds}.items():
        if type(value) not in (int, float):
            raise ValueError(f"state.{name} is {value!r:.60}")
    return state


def versions() -> dict[str, str]:
    """Versions of the libraries that a step's numbers depend on."""
    packages = ("clearhead", "torch", "numpy", "tokenizers")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}
