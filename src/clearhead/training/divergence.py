"""Notices a loss that has risen far above that of a model that knows nothing."""

import math

from clearhead.config import ModelConfig, TrainConfig
from clearhead.training.sizes import usual_lr


class Divergence:
    """Notices once that the loss has risen to several times its first value. The run only reports
    it."""

    TIMES = 3.0

    def __init__(self, config: TrainConfig, model: ModelConfig) -> None:
        self.lr = config.lr
        is_factor = config.schedule == "noam"  # of a formula, not the highest rate
        self.lower = self.lr / 10 if is_factor else min(self.lr / 10, usual_lr(model.d_model))
        # Guessing evenly costs this much. A model that starts from trained weights is below it, and
        # may rise to it without any fault of the learning rate.
        self.even_guess = math.log(max(model.vocab_size, model.target_vocab_size or 0, 2))
        self.first: float | None = None
        """The loss of the first step in this process."""
        self.is_reported = False

    def after_step(self, step: int, loss: float) -> str:
        """Return the warning to report; empty if there is nothing new."""
        if self.is_reported or not math.isfinite(loss):
            return ""
        if self.first is None:
            self.first = loss
        if loss <= self.TIMES * max(self.first, self.even_guess):
            return ""
        self.is_reported = True
        return (
            f"warning: step {step:,}: the loss has risen to {loss:,.1f}, from {self.first:,.1f} at "
            f"first; train.lr={self.lr:g} is probably too high; try train.lr={self.lower:g}, "
            "in a new folder"
        )
