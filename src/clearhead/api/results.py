"""What a model's answers are made of, for callers that want more than the text."""

from dataclasses import dataclass

from clearhead.decoding.results import Output, Scored

__all__ = ["Classified", "Output", "Scored", "classified"]


@dataclass(frozen=True, kw_only=True)
class Classified:
    """What a classifier says of a text."""

    label: str
    probabilities: dict[str, float]


def classified(probabilities: dict[str, float]) -> Classified:
    """Probabilities with the likeliest label."""
    likeliest = max(probabilities, key=probabilities.__getitem__)
    return Classified(label=likeliest, probabilities=probabilities)
