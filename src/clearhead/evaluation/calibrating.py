"""Learns from held-out text what a model's own scores say about its translations: a fractional
logistic regression (Papke and Wooldridge 1996) from the mean log-probability of a token and the
length to the sentence's chrF++. Its accuracy is measured on sentences to which the curve was not
fitted."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearhead.data.order import derive_key, permute
from clearhead.errors import InputError
from clearhead.evaluation.translation import chrf
from clearhead.interop.calibration import Calibration

Numbers = NDArray[np.float64]
FEWEST = 50
"""The lowest number of sentences for a curve; a curve through fewer sentences means little."""
N_FOLDS = 5
N_GROUPS = 10
RIDGE = 1e-3
"""A small penalty. Without it, a text whose sentences all have the same length has no single best
curve."""
N_STEPS = 50


class JudgedTranslation(NamedTuple):
    """A translation of held-out text."""

    log_prob: float
    """The mean log-probability of a token."""
    n_tokens: int
    quality: float
    """The chrF++ of the translation, from 0 to 1."""


class CurvePoint(NamedTuple):
    """A tenth of the sentences. The tenths are sorted by confidence, the lowest first."""

    n: int
    confidence: float
    """The mean confidence that the curve gives."""
    measured: float
    """The mean of their chrF++, from 0 to 1."""
    half_interval: float
    """Half of the 95% interval."""


@dataclass(frozen=True, kw_only=True)
class MeasuredCalibration:
    """A calibration, with its accuracy on sentences to which it was not fitted."""

    calibration: Calibration
    n: int
    points: list[CurvePoint]
    error: float
    """The mean distance between confidence and chrF++ in a tenth (expected calibration error)."""
    error_before: float
    """The same error for the mean probability of a token, which is not calibrated."""
    worst_found: dict[str, float]
    """The share of the worst tenth by chrF++ that is in the lowest tenth by confidence; for
    comparison, the share in the longest tenth, and chance."""

    @property
    def facts(self) -> dict[str, Any]:
        """Return the facts as plain values."""
        return {
            "measure": "chrF++",
            "n": self.n,
            "error": round(self.error, 4),
            "error_before": round(self.error_before, 4),
            "worst_found": {name: round(value, 4) for name, value in self.worst_found.items()},
            "points": [
                {"n": point.n} | {k: round(v, 4) for k, v in point._asdict().items() if k != "n"}
                for point in self.points
            ],
        }


def sentence_qualities(translations: Sequence[str], references: Sequence[str]) -> list[float]:
    """Return the chrF++ of each sentence, from 0 to 1."""
    metric = chrf()
    pairs = zip(translations, references)
    return [metric.sentence_score(mine, [reference]).score / 100 for mine, reference in pairs]


def calibrate(judged: Sequence[JudgedTranslation]) -> MeasuredCalibration:
    """Fit a curve to all translations, and measure its accuracy by cross-validation."""
    if len(judged) < FEWEST:
        raise InputError(
            f"there are {len(judged)} translations to calibrate with, but {FEWEST} are needed; "
            "give more held-out text"
        )
    confidences = np.empty(len(judged))
    order = permute(np.arange(len(judged)), len(judged), derive_key("calibration"))
    for fold in range(N_FOLDS):
        held_out = set(order[fold::N_FOLDS].tolist())
        curve = _fit(
            [translation for index, translation in enumerate(judged) if index not in held_out]
        )
        for index in held_out:
            confidences[index] = curve.confidence(judged[index].log_prob, judged[index].n_tokens)
    qualities = np.array([translation.quality for translation in judged])
    before = np.array([math.exp(min(0.0, translation.log_prob)) for translation in judged])
    lengths = np.array([-float(translation.n_tokens) for translation in judged])
    points = _points(confidences, qualities)
    return MeasuredCalibration(
        calibration=_fit(judged),
        n=len(judged),
        points=points,
        error=_error(points),
        error_before=_error(_points(before, qualities)),
        worst_found={
            "confidence": _found(confidences, qualities),
            "length": _found(lengths, qualities),
            "chance": (len(judged) // N_GROUPS) / len(judged),
        },
    )


def _fit(judged: Sequence[JudgedTranslation]) -> Calibration:
    """Fit by Newton's method, on features with mean 0 and deviation 1."""
    log_probs = np.array([translation.log_prob for translation in judged])
    lengths = np.log([max(1, translation.n_tokens) for translation in judged])
    qualities = np.array([translation.quality for translation in judged])
    features = np.stack([log_probs, lengths], axis=1)
    means, deviations = features.mean(axis=0), features.std(axis=0)
    deviations[deviations < 1e-3] = 1.0  # all alike: there is nothing to learn from it
    rows = np.concatenate([np.ones((len(judged), 1)), (features - means) / deviations], axis=1)
    ridge = RIDGE * len(judged) * np.array([RIDGE, 1.0, 1.0])
    weights = np.zeros(3)
    for _ in range(N_STEPS):
        expected = 1 / (1 + np.exp(-rows @ weights))
        slope = rows.T @ (qualities - expected) - ridge * weights
        curvature = rows.T @ (rows * (expected * (1 - expected))[:, None]) + np.diag(ridge)
        step = np.linalg.solve(curvature, slope)
        weights = weights + np.clip(step, -2.0, 2.0)
    per_unit = weights[1:] / deviations
    return Calibration(
        constant=float(weights[0] - per_unit @ means),
        of_log_prob=float(per_unit[0]),
        of_length=float(per_unit[1]),
        least_log_prob=float(log_probs.min()),
        most_log_prob=float(log_probs.max()),
        least_length=float(lengths.min()),
        most_length=float(lengths.max()),
    )


def _points(confidences: Numbers, qualities: Numbers) -> list[CurvePoint]:
    tenths = np.array_split(np.argsort(confidences, kind="stable"), N_GROUPS)
    return [
        CurvePoint(
            n=len(tenth),
            confidence=float(confidences[tenth].mean()),
            measured=float(qualities[tenth].mean()),
            half_interval=float(1.96 * qualities[tenth].std(ddof=1) / math.sqrt(len(tenth))),
        )
        for tenth in tenths
    ]


def _error(points: Sequence[CurvePoint]) -> float:
    total = sum(point.n for point in points)
    return sum(point.n * abs(point.confidence - point.measured) for point in points) / total


def _found(scores: Numbers, qualities: Numbers) -> float:
    n = len(scores) // N_GROUPS
    lowest, worst = (set(np.argsort(x, kind="stable")[:n].tolist()) for x in (scores, qualities))
    return len(lowest & worst) / n
