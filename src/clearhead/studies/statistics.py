"""Intervals for figures that vary with the seed of a run and with the sentences of a test set.

A measured figure has two sources of chance: another seed would have trained other weights, and
another test set would have had other sentences. The runs of an arm share one test set, so that the
spread between seeds knows nothing of the second source; resampling three seeds is worse still,
since three numbers do not show their own spread (`benchmarks/intervals.py` measures how often each
kind of interval covers the truth).

Both sources are the random effects of a crossed design, seeds × blocks of sentences. With
x(s, -g) the measure of seed s on the sentences outside block g,

    variance of the mean = seeds + sentences - seeds:sentences

where the first is the variance between seeds divided by their number, the second the jackknife
variance of the mean over seeds, and the third what both contain: the jackknife variance of what is
left of x after the means of its seed and its block are taken away. The interval is Student's, with
Satterthwaite's degrees of freedom. A share (lines that are right) that is 0 or 1 in every run has
no spread at all; its interval is never narrower than Clopper and Pearson's at that end.

The difference that would have been shown is stated for the noise that was measured. Where no line
differs none was measured, and yet a difference has noise of its own: lines that differ in a share x
of n have a variance of at least x(1 - x)/n. If the seeds differ in the same lines, their mean has
that variance, known from blocks of sentences; if each differs in lines of its own, it is divided by
the number of seeds and known from them. The stated difference is shown often enough in both."""

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from clearhead.errors import ClearheadError

CONFIDENCE = 0.95
POWER = 0.8
"""Probability with which a difference of the stated size is shown."""
N_BLOCKS = 20
COVERAGE = {3: (0.895, 0.9575), 5: (0.9145, 0.9615), 10: (0.9365, 0.956)}
"""How often intervals over seeds and sentences contain the true value in
`benchmarks/results/intervals.json`, in the worst and the best of its cases, by the number of
seeds."""
N_POINTS = 400
"""The points at which a distribution is summed."""


class Measurements(NamedTuple):
    """A measure of some runs: one number for each seed, and for each seed the measure without each
    block of sentences (None: the measure is not a sum over sentences)."""

    values: Sequence[float]
    left_out: Sequence[Sequence[float]] | None = None
    n_lines: int | None = None
    """For a share: the number of lines that it is a share of."""


class Estimate(NamedTuple):
    """A mean over seeds with its interval. A single seed has none."""

    value: float
    half: float | None
    """Half of the interval."""
    error: float = 0.0
    freedom: float = 1.0
    """The standard error, and the degrees of freedom that it is known with."""
    n_seeds: int = 0
    n_lines: int | None = None
    """For a share: the number of lines that it is a share of."""

    @property
    def detectable(self) -> float | None:
        """The difference that would have been shown with the probability POWER, or a higher one.
        None: there is no interval, or no difference of shares is shown so often."""
        if self.half is None:
            return None
        if self.n_lines is None:
            return detectable(self.error, self.freedom)
        return _detectable_share(self.error, self.freedom, self.n_lines, self.n_seeds)

    @property
    def shown(self) -> bool:
        """Tell whether the interval excludes 0."""
        return self.half is not None and abs(self.value) > self.half


def estimate(figure: Measurements) -> Estimate:
    """Estimate the mean over seeds and sentences."""
    size = _Size(len(figure.values), figure.n_lines)
    return _interval(float(np.mean(figure.values)), _components(figure), size)


def difference(first: Measurements, second: Measurements, *, paired: bool) -> Estimate:
    """Estimate how much larger the second measure is than the first. `paired`: run n of both has
    the same seed and the same order of samples. If their blocks are equal, both are measured on the
    same sentences. Runs that are not paired have an interval if both have at least two of them."""
    size = _Size(min(len(first.values), len(second.values)), first.n_lines or second.n_lines)
    if paired:
        both = Measurements(
            [b - a for a, b in zip(first.values, second.values, strict=True)],
            None
            if first.left_out is None or second.left_out is None
            else np.subtract(second.left_out, first.left_out).tolist(),
        )
        return _interval(float(np.mean(both.values)), _components(both), size)
    value = float(np.mean(second.values) - np.mean(first.values))
    if size.n_seeds < 2:
        return Estimate(value, None)
    seeds = [
        part for figure in (first, second) for part in _components(figure._replace(left_out=None))
    ]
    if first.left_out is None or second.left_out is None:
        return _interval(value, seeds, size)
    means = np.mean(second.left_out, axis=0) - np.mean(first.left_out, axis=0)
    inside = [
        part for figure in (first, second) for part in _components(figure) if part.variance < 0
    ]
    return _interval(value, [*seeds, _sentences(means), *inside], size)


def detectable(standard_error: float, freedom: float) -> float:
    """Return the true difference at which an interval excludes 0 with the probability POWER."""
    if standard_error == 0:
        return 0.0
    stats, brentq = scipy_stats(), _brentq()
    limit = stats.t.ppf((1 + CONFIDENCE) / 2, freedom)

    def missing(shift: float) -> float:  # an interval on the wrong side of 0 is no finding
        return float(stats.nct.sf(limit, freedom, shift)) - POWER

    return standard_error * float(brentq(missing, 0.0, 2 * limit + 2))


def _detectable_share(
    standard_error: float, freedom: float, n_lines: int, n_seeds: int
) -> float | None:
    """Return the difference of a share that would be detected. Its interval has a floor, and its
    noise grows with a difference."""
    measured = _Component(standard_error**2, freedom)

    def missing(share: float) -> float:
        own = share * (1 - share) / n_lines
        least = _Component(own, N_BLOCKS - 1), _Component(own / n_seeds, n_seeds - 1)
        chances = [_chance(share, max(measured, component), _floor(n_lines)) for component in least]
        return min(chances) - POWER

    return None if missing(1.0) < 0 else float(_brentq()(missing, _floor(n_lines), 1.0))


def _chance(shift: float, noise: "_Component", floor: float) -> float:
    """The probability that a difference is found above both the floor and Student's limit, if
    `shift` is true."""
    if noise.variance == 0:
        return float(shift > floor)
    stats, error = scipy_stats(), math.sqrt(noise.variance)
    limit = error * stats.t.ppf((1 + CONFIDENCE) / 2, noise.freedom)
    # Equally likely values of the difference; for each, how likely its standard error is small.
    seen = shift + error * stats.norm.ppf((np.arange(N_POINTS) + 0.5) / N_POINTS)
    small = stats.chi2.cdf(noise.freedom * (seen.clip(0) / limit) ** 2, noise.freedom)
    return float(np.mean((seen > floor) * small))


def detectable_in_spreads(n_seeds: int, *, paired: bool) -> float | None:
    """Return the difference that this many seeds show, in standard deviations over seeds: of the
    paired differences, or of the runs of an arm."""
    if n_seeds < 2:
        return None
    arms = 1 if paired else 2
    return detectable((arms / n_seeds) ** 0.5, arms * (n_seeds - 1))


class _Size(NamedTuple):
    """How many seeds a figure is from, and if it is a share, how many lines."""

    n_seeds: int
    n_lines: int | None


class _Component(NamedTuple):
    """A part of a variance, and what it is known from."""

    variance: float
    freedom: float


def _components(figure: Measurements) -> list[_Component]:
    n = len(figure.values)
    if n < 2:
        return []
    components = [_Component(float(np.var(figure.values, ddof=1)) / n, n - 1)]
    if figure.left_out is not None:
        x = np.asarray(figure.left_out)
        components.append(_sentences(x.mean(axis=0)))
        n_blocks = x.shape[1]
        rest = x - x.mean(axis=1, keepdims=True) - x.mean(axis=0) + x.mean()
        common = (n_blocks - 1) / n_blocks * float((rest**2).sum()) / (n - 1) / n
        components.append(_Component(-common, (n - 1) * (n_blocks - 1)))
    return components


def _sentences(means: Any) -> _Component:
    n_blocks = len(means)
    spread = float(((means - means.mean()) ** 2).sum())
    return _Component((n_blocks - 1) / n_blocks * spread, n_blocks - 1)


def _interval(value: float, parts: Sequence[_Component], size: _Size) -> Estimate:
    if not parts:
        return Estimate(value, None)
    floor = 0.0 if size.n_lines is None else _floor(size.n_lines)
    # What is taken away is itself estimated: no less is left than the largest part.
    variance = max(sum(part.variance for part in parts), max(part.variance for part in parts))
    if variance <= 0:
        return Estimate(value, floor, 0.0, 1.0, *size)
    freedom = variance**2 / sum(part.variance**2 / part.freedom for part in parts)
    freedom = max(freedom, min(part.freedom for part in parts))
    error = math.sqrt(variance)
    half = error * float(scipy_stats().t.ppf((1 + CONFIDENCE) / 2, freedom))
    return Estimate(value, max(half, floor), error, freedom, *size)


@cache
def _floor(n_lines: int) -> float:
    """Half of the interval of a share that is 0 or 1."""
    return 1 - float(scipy_stats().binomtest(n_lines, n_lines).proportion_ci(CONFIDENCE).low)


def scipy_stats() -> Any:
    """Return scipy.stats, which the extra `eval` installs."""
    try:
        from scipy import stats
    except ImportError:
        raise ClearheadError(
            "intervals need scipy; install it with: pip install 'clearhead[eval]'"
        ) from None
    return stats


def _brentq() -> Any:
    from scipy.optimize import brentq

    return brentq
