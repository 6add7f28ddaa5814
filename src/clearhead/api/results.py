"""Defines what a model's answers consist of, for callers that need more than the text, and what an
evaluation returns."""

from dataclasses import dataclass
from typing import Any

from clearhead.decoding.results import Output, Scored

__all__ = ["Classified", "Evaluation", "Output", "Scored", "classified"]


@dataclass(frozen=True, kw_only=True)
class Classified:
    """What a classifier says about a text."""

    label: str
    probabilities: dict[str, float]


def classified(probabilities: dict[str, float]) -> Classified:
    """Return probabilities together with the likeliest label."""
    likeliest = max(probabilities, key=probabilities.__getitem__)
    return Classified(label=likeliest, probabilities=probabilities)


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Figures by name, as in `evaluation["BLEU"]`; `print` shows them with their intervals."""

    values: dict[str, float]
    records: list[dict[str, Any]]
    """The details of each figure, in plain values."""
    lines: list[str]

    def __getitem__(self, name: str) -> float:
        return self.values[name]

    def __str__(self) -> str:
        return "\n".join(self.lines)
