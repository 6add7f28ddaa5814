"""The calibration of a translator: the quality to expect from a translation, given the model's own
scores. It is stored as `calibration.json` in a model folder and made from held-out text
(`evaluation/calibrating.py`). It belongs to the weights with which it was made; a run that
publishes other weights removes it."""

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from clearhead.errors import FolderError, function
from clearhead.files import sha256_of, write_whole
from clearhead.interop.folders import has_file, read_json, regular_file

CALIBRATION = "calibration.json"
FORMAT = "clearhead-calibration-1"
LARGEST = 1e6
"""The largest number allowed in the file; real ones are below a hundred."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A logistic curve from a translation's log-probability and length to the mean chrF++ of
    held-out translations with such scores."""

    constant: float
    of_log_prob: float
    """Weight of the mean log-probability of a token."""
    of_length: float
    """Weight of the logarithm of the number of tokens."""
    least_log_prob: float
    most_log_prob: float
    least_length: float
    most_length: float
    """The longest length in the held-out text: beyond it, the curve is level."""

    def confidence(self, log_prob: float, n_tokens: int) -> float:
        """Return the chrF++ to expect, from 0 to 1, of a translation with this number of tokens and
        this mean log-probability of a token."""
        log_prob = min(max(log_prob, self.least_log_prob), self.most_log_prob)
        length = min(max(math.log(max(1, n_tokens)), self.least_length), self.most_length)
        logit = self.constant + self.of_log_prob * log_prob + self.of_length * length
        return 1 / (1 + math.exp(-min(max(logit, -30.0), 30.0)))


def weights_hash(folder: Path) -> str:
    """Return a hash of the weights of a model folder."""
    names = sorted(path.name for path in folder.iterdir() if path.suffix == ".safetensors")
    hashes = [f"{name} {sha256_of(regular_file(folder, name))}" for name in names]
    return hashlib.sha256("\n".join(hashes).encode()).hexdigest()


def write_calibration(folder: Path, calibration: Calibration, facts: dict[str, Any]) -> Path:
    """Write the calibration into a model folder, with a description of how it was made."""
    content = {
        "format": FORMAT,
        "weights": weights_hash(folder),
        "curve": asdict(calibration),
        **facts,
    }
    path = folder / CALIBRATION
    try:
        write_whole(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise FolderError(
            f"{path} cannot be written ({error.strerror}); copy the model folder to where it can, "
            "and calibrate the copy"
        ) from None
    return path


def read_calibration(folder: Path) -> Calibration | None:
    """Read the calibration of a model folder; None: there is none. Raises if it is damaged, or was
    made with other weights."""
    if not has_file(folder, CALIBRATION):
        return None
    path, content = folder / CALIBRATION, read_json(folder, CALIBRATION)
    if content.get("format") != FORMAT:
        raise FolderError(
            f"{path} is not of the format {FORMAT!r}; remove it, and calibrate the model again"
        )
    if content.get("weights") != weights_hash(folder):
        raise FolderError(
            f"{path} was made with other weights; remove it, or calibrate the model again: "
            f"{function('calibrate')}"
        )
    curve = content.get("curve")
    names = list(Calibration.__dataclass_fields__)
    if not isinstance(curve, dict) or set(curve) != set(names):
        raise FolderError(f"{path}: curve must have the numbers {', '.join(names)}; is it damaged?")
    for name, value in curve.items():
        # In Python, a bool is an int, but it is no number here.
        if type(value) not in (int, float) or not abs(value) <= LARGEST:
            raise FolderError(f"{path}: {name} is {value!r:.40}, not a number; is it damaged?")
    return Calibration(**{name: float(value) for name, value in curve.items()})
