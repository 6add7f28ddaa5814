"""Describes the model on the page: its README, its recipe, its training and the comparison."""

import json
from pathlib import Path
from typing import Any

from clearhead.interop.certificate import Certificate
from clearhead.interop.folders import has_file, read_text

ABOUT, RECIPE, METRICS = "README.md", "recipe.toml", "metrics.jsonl"
CARRIED = ("ATTRIBUTION.txt", "LICENSE", "LICENSE.txt")
"""The files that a licence may require beside the weights."""
MAX_BYTES = 4 * 2**20


def card_of(model_folder: Path, certificate: Certificate) -> dict[str, Any]:
    """Make the card of a model folder, and of the run around it if there is one."""
    run = model_folder.parent if model_folder.name == "model" else None
    return {
        "about": _text(model_folder, ABOUT),
        "recipe": None if run is None else _text(run, RECIPE),
        "training": None if run is None else _last_validation(run),
        "parity": certificate.verdict(),
        "files": {name: text for name in CARRIED if (text := _text(model_folder, name))},
    }


def _text(folder: Path, name: str) -> str | None:
    return read_text(folder, name, most=MAX_BYTES) if has_file(folder, name) else None


def _last_validation(run: Path) -> dict[str, Any] | None:
    """Return step and loss; None if a run has none, or if its lines are no longer readable."""
    if not has_file(run, METRICS):
        return None
    for line in reversed(read_text(run, METRICS).splitlines()):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and record.get("valid"):
            loss = record.get("loss")
            if isinstance(loss, int | float):
                return {"step": record["step"], "loss": loss}
    return None
