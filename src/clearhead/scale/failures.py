"""Checkpoints and failures: how often to save, and what share of the time is training."""

import math


def best_interval(save: float, between_failures: float) -> float:
    """Return the seconds of training between two checkpoints (Young 1974; Daly 2006, first order).
    Saving costs little if failures are rare, and a failure costs half an interval."""
    return math.sqrt(2 * save * between_failures)


def goodput(interval: float, save: float, restart: float, between_failures: float) -> float:
    """Return the share of the time that ends up in the weights, with failures at any moment, even
    while saving or restarting (Daly 2006, equation 20). A segment of training and saving is
    repeated until it is complete, and each failure costs a restart."""
    if math.isinf(between_failures):
        return interval / (interval + save)
    try:
        per_segment = math.exp(restart / between_failures) * math.expm1(
            (interval + save) / between_failures
        )
    except OverflowError:  # no segment is ever complete
        return 0.0
    return interval / (between_failures * per_segment)
