"""What a model's answers are made of, for whoever wants more than the text."""

from dataclasses import dataclass

from clearhead.decoding import Output
from clearhead.decoding.results import Scored, StopReason
from clearhead.inspection.labels import label_of
from clearhead.text.tokenizer import Tokenizer

__all__ = ["NOTHING", "Classified", "DecodedText", "Scored", "classified", "decoded"]


@dataclass(frozen=True, kw_only=True)
class DecodedText:
    """A text that a model generated, and how."""

    text: str
    tokens: list[int]
    """The ids, the end included where it was generated."""
    pieces: list[str]
    """Each token as text; blanks and line ends have signs."""
    log_probs: list[float]
    """Of each token, by the model itself."""
    score: float
    """What texts are compared by: the sum of `log_probs`, divided by the beam's length penalty."""
    stop: StopReason


def decoded(output: Output, text: str, tokenizer: Tokenizer) -> DecodedText:
    """An output with its text."""
    return DecodedText(
        text=text,
        tokens=output.tokens,
        pieces=[label_of(token, tokenizer) for token in output.tokens],
        log_probs=output.log_probs,
        score=output.score,
        stop=output.stop,
    )


NOTHING = DecodedText(text="", tokens=[], pieces=[], log_probs=[], score=0.0, stop="end")
"""The answer to an empty text."""


@dataclass(frozen=True, kw_only=True)
class Classified:
    """What a classifier says of a text."""

    label: str
    probabilities: dict[str, float]


def classified(probabilities: dict[str, float]) -> Classified:
    """Probabilities with the likeliest label."""
    likeliest = max(probabilities, key=probabilities.__getitem__)
    return Classified(label=likeliest, probabilities=probabilities)
