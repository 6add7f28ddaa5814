"""Simulated runs whose true mean is known, and how often an interval over them holds it. A
simulated measure is the mean over seeds and sentences of

    truth + seed effect + sentence effect + effect of the sentence under that seed

with normal effects, or with effects that are skewed (exponential). Two cases: the seeds differ most
(a small model on a large test set), or the sentences do (a stable model on a small test set).
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from clearhead.studies.statistics import CONFIDENCE, N_BLOCKS, Estimate, Measurements, estimate

N_LINES = 200
CASES = {
    "seeds dominate": (1.0, 3.0, 3.0),
    "sentences dominate": (0.05, 10.0, 3.0),
    "both alike": (0.4, 5.7, 5.7),
}
"""Standard deviations of the effects of the seed, the sentence, and both; a sentence's effects are
divided by √N_LINES in the mean."""


def simulate(
    rng: np.random.Generator, n_seeds: int, case: str, *, skewed: bool = False
) -> Measurements:
    """Runs whose true mean is 0."""
    seed_spread, line_spread, both_spread = CASES[case]

    def draw(*shape: int) -> Any:
        return rng.exponential(size=shape) - 1 if skewed else rng.normal(size=shape)

    x = seed_spread * draw(n_seeds, 1) + line_spread * draw(1, N_LINES)
    x = x + both_spread * draw(n_seeds, N_LINES)
    inside = x.reshape(n_seeds, -1, N_BLOCKS).sum(axis=1)
    left_out = (x.sum(axis=1, keepdims=True) - inside) / (N_LINES - N_LINES // N_BLOCKS)
    return Measurements(x.mean(axis=1).tolist(), left_out.tolist())


def over_seeds_and_sentences(figure: Measurements) -> tuple[float, float]:
    """What a study uses."""
    return _ends(estimate(figure))


def over_seeds(figure: Measurements) -> tuple[float, float]:
    """Student's interval over seeds alone."""
    return _ends(estimate(figure._replace(left_out=None)))


def bootstrap_of_seeds(figure: Measurements) -> tuple[float, float]:
    """Percentiles of means over resampled seeds."""
    rng = np.random.default_rng(0)
    values = np.asarray(figure.values)
    means = values[rng.integers(0, len(values), (500, len(values)))].mean(axis=1)
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def _ends(found: Estimate) -> tuple[float, float]:
    assert found.half is not None
    return found.value - found.half, found.value + found.half


KINDS = {
    "percentile bootstrap of seeds": bootstrap_of_seeds,
    "t over seeds": over_seeds,
    "t over seeds and sentences": over_seeds_and_sentences,
}


def coverage(
    kind: Callable[[Measurements], tuple[float, float]],
    n_seeds: int,
    case: str,
    *,
    n_draws: int = 2000,
    skewed: bool = False,
) -> float:
    """The share of simulated studies whose interval holds the truth."""
    rng = np.random.default_rng([n_seeds, list(CASES).index(case), skewed])
    intervals = [kind(simulate(rng, n_seeds, case, skewed=skewed)) for _ in range(n_draws)]
    return float(np.mean([low <= 0 <= high for low, high in intervals]))
