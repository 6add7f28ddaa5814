"""Defines the results of all strategies. `attention_of` gives the attention of a result."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import exp
from typing import Literal, NamedTuple

from clearhead.errors import InputError
from clearhead.localise.glossary import Term, TermUse
from clearhead.text.tokenizer import Tokenizer
from clearhead.text.visible import label_of

StopReason = Literal["end", "length", "window", "constraint"]
"""Why decoding stopped: the end token was chosen; `max_new` was reached; the model's window was
full; the constraint allowed no further token."""


@dataclass(frozen=True, kw_only=True)
class Output:
    """The output of a model: tokens, and their text if a tokenizer has decoded them."""

    tokens: list[int]
    """The new tokens only, including the end token if it was chosen."""
    log_probs: list[float]
    """The model's log-probability of each token, before temperature, top-k and top-p, penalties and
    constraints."""
    score: float
    """The number by which texts are compared: the sum of `log_probs`, divided by the beam's length
    penalty."""
    stop: StopReason
    text: str = ""
    """The text of the tokens, if a tokenizer has decoded them."""
    tokenizer: Tokenizer | None = field(default=None, repr=False, compare=False)
    confidence: float | None = None
    """The mean chrF++, from 0 to 1, of translations of held-out text with such scores; None: the
    model is not calibrated (`clearhead.calibrate`)."""
    terms: tuple[TermUse, ...] = ()
    """The terms of a glossary in the source, with whether the text uses them."""

    @property
    def log_prob(self) -> float:
        """The log-probability of the whole text."""
        return sum(self.log_probs, 0.0)

    @property
    def mean_probability(self) -> float:
        """The geometric mean of the probabilities of the tokens. If an engine gives only a score,
        this is the probability that the score implies."""
        log_probs = self.log_probs or [self.score]
        return exp(min(0.0, sum(log_probs) / len(log_probs)))

    @property
    def calibrated(self) -> float | None:
        """The old name of `confidence`, until version 0.4."""
        message = "Output.calibrated ends with version 0.4; write Output.confidence"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return self.confidence

    @property
    def pieces(self) -> list[str]:
        """Return each token as text, with signs for spaces and line ends."""
        if self.tokenizer is None:
            raise InputError(
                "these tokens have no tokenizer; decode them with the model's tokenizer"
            )
        return [label_of(token, self.tokenizer) for token in self.tokens]

    def __str__(self) -> str:
        return repr(self) if self.tokenizer is None else self.text


class AnsweredText(NamedTuple):
    """The outputs for one text. There are none if the text was empty."""

    tokens_read: list[int]
    """The tokens that the model read."""
    n_cut: int
    """The number of tokens of the text that the model did not read."""
    outputs: list[Output]
    again: bool = False
    """True if clearhead has decoded the text again, because the translation of another engine had
    lost something."""

    @property
    def texts(self) -> list[str]:
        """The texts of the outputs."""
        return [output.text for output in self.outputs]


def joint_terms(parts: Sequence[Output]) -> tuple[TermUse, ...]:
    """Return the terms of a text that consists of these parts. Each term is listed once, and counts
    as used if all parts that need it use it."""
    uses: dict[Term, bool] = {}
    for use in (use for part in parts for use in part.terms):
        uses[use.term] = uses.get(use.term, True) and use.is_used
    return tuple(TermUse(term, used) for term, used in uses.items())


@dataclass(frozen=True, kw_only=True)
class Scored:
    """How likely a model finds a text."""

    tokens: list[int]
    log_probs: list[float]

    @property
    def log_prob(self) -> float:
        """The log-probability of the whole text."""
        return sum(self.log_probs, 0.0)


class Branch(NamedTuple):
    """One ranked continuation of a beam's step, and whether it was kept."""

    parent: int
    """The slot of the hypothesis that the branch continues."""
    token: int
    log_prob: float
    """The log-probability of the token."""
    total: float
    """The log-probability of the whole text so far."""
    fate: Literal["kept", "finished", "dropped"]
    slot: int | None
    """The slot of a kept hypothesis in the next step; None: the branch was not kept."""


class BeamStep(NamedTuple):
    """One step of one sentence's beam search, the best continuations first."""

    number: int
    """The number of the input."""
    length: int
    """The number of tokens of each continuation."""
    branches: list[Branch]


Watch = Callable[[BeamStep], None]
"""Called with every step of every sentence of a beam search."""
