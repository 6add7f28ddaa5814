"""Gives translations their calibrated confidence."""

from collections.abc import Sequence
from dataclasses import replace

from clearhead.config import BeamConfig
from clearhead.decoding.results import Output
from clearhead.interop.calibration import Calibration


def mean_log_prob(output: Output, beam: BeamConfig) -> float:
    """Return the mean log-probability of a token. If an engine gives no log-probabilities of
    tokens, use the output's score, which the beam has already divided by the length penalty."""
    n_tokens = max(1, len(output.tokens))
    total = output.log_prob or output.score * beam.normaliser(len(output.tokens))
    return total / n_tokens


def rated(output: Output, calibration: Calibration, beam: BeamConfig) -> Output:
    """Return the output with its confidence, unless its parts already have one."""
    if output.confidence is not None:
        return output
    if not output.tokens:  # there was nothing to translate, or no space for a token
        return replace(output, confidence=1.0 if output.stop == "end" else 0.0)
    confidence = calibration.confidence(mean_log_prob(output, beam), len(output.tokens))
    return replace(output, confidence=confidence)


def joint_confidence(parts: Sequence[Output]) -> float | None:
    """Return the confidence of a text that consists of these parts: the mean of their confidences,
    weighted by tokens. None: a part has no confidence, or there is no part."""
    n_tokens = sum(len(part.tokens) for part in parts)
    if not n_tokens:
        return None
    total = 0.0
    for part in parts:
        if part.confidence is None:
            return None
        total += len(part.tokens) * part.confidence
    return total / n_tokens
