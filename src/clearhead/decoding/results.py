"""What comes out of every strategy. Its text is the tokenizer's to give (`decode`), its attention
`attention_of`'s."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

StopReason = Literal["end", "length", "window", "constraint"]
"""The end token was written; `max_new` was reached; the model's window was full; the constraint
allowed nothing more."""


@dataclass(frozen=True, kw_only=True)
class Output:
    """One text that a model wrote."""

    tokens: list[int]
    """The new tokens only, the end included where it was written."""
    log_probs: list[float]
    """Of each token, by the model itself: before temperature, cuts, penalties and constraints."""
    score: float
    """What texts are compared by: the sum of `log_probs`, divided by the beam's length penalty."""
    stop: StopReason
    history: list["BeamStep"] = field(default_factory=list)
    """Every step of the beam that found this text, if asked for."""

    @property
    def log_prob(self) -> float:
        """Of the whole text."""
        return sum(self.log_probs)


class BeamStep(NamedTuple):
    """The unfinished hypotheses after one step, the best first."""

    tokens: list[int]
    """What each has just written."""
    parents: list[int]
    """The hypothesis of the step before that each goes on from."""
    log_probs: list[float]
    """Of each whole hypothesis."""


def beam_step(ranked: Iterable[tuple[int, int, float]]) -> BeamStep:
    """From (token, parent, log-probability) of each hypothesis."""
    tokens, parents, log_probs = zip(*ranked) if (ranked := list(ranked)) else ((), (), ())
    return BeamStep(list(tokens), list(parents), list(log_probs))
