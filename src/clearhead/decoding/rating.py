"""Translations with their calibrated confidence."""

from collections.abc import Sequence
from dataclasses import replace

from clearhead.config import BeamConfig
from clearhead.decoding.results import Output
from clearhead.interop.calibration import Calibration


def mean_log_prob(output: Output, beam: BeamConfig) -> float:
    """The mean log-probability of a token. If an engine gives no log-probabilities of tokens, its
    score is used, which the beam has divided."""
    n_tokens = max(1, len(output.tokens))
    total = output.log_prob or output.score * beam.normaliser(len(output.tokens))
    return total / n_tokens


def rated(output: Output, calibration: Calibration, beam: BeamConfig) -> Output:
    """The output with its confidence, unless its parts have brought it one."""
    if output.confidence is not None:
        return output
    if not output.tokens:  # nothing that had to be translated, or no space for a token
        return replace(output, confidence=1.0 if output.stop == "end" else 0.0)
    confidence = calibration.confidence(mean_log_prob(output, beam), len(output.tokens))
    return replace(output, confidence=confidence)


def joint_confidence(parts: Sequence[Output]) -> float | None:
    """The confidence of a text that is made of these parts: their mean, weighted by tokens. None: a
    part has none, or there is no part."""
    n_tokens = sum(len(part.tokens) for part in parts)
    if not n_tokens:
        return None
    total = 0.0
    for part in parts:
        if part.confidence is None:
            return None
        total += len(part.tokens) * part.confidence
    return total / n_tokens
