"""Computes the learning rate as a pure function of the step: there is no state to save or
restore."""

import math

from clearhead.config.train import TrainConfig


def learning_rate(step: int, config: TrainConfig, d_model: int) -> float:
    """Return the learning rate of update number `step`, counted from 1. All schedules first rise in
    a straight line for `warmup_steps`; noam is the paper's schedule (section 5.3)."""
    warmup = config.warmup_steps
    match config.schedule:
        case "noam":
            return config.lr * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)
        case "inverse-sqrt":
            return config.lr * min(step / warmup, math.sqrt(warmup / step))
        case "constant":
            return config.lr * _rise(step, warmup)
        case "cosine":
            fallen = (1 - math.cos(math.pi * _share(step - warmup, config.steps - warmup))) / 2
        case "wsd":
            fallen = _share(step - (config.steps - config.decay_steps), config.decay_steps)
    return config.lr * _rise(step, warmup) * (1 - (1 - config.final_lr) * fallen)


def short_warmup(config: TrainConfig) -> str:
    """Return a warning if the run ends before its warm-up, so that the learning rate never reaches
    its highest value; "" if not."""
    warmup, steps = config.warmup_steps, config.steps
    if warmup <= steps:
        return ""
    return (
        f"warning: train.warmup_steps={warmup} is more than train.steps={steps}, so the learning "
        f"rate ends at {steps / warmup:.1%} of its highest value; try "
        f"train.warmup_steps={max(1, steps // 10)}, or more steps"
    )


def _rise(step: int, warmup: int) -> float:
    return min(1.0, step / warmup) if warmup else 1.0


def _share(done: int, of: int) -> float:
    return min(1.0, max(0.0, done / of)) if of > 0 else 0.0
