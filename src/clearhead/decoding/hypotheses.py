"""The unfinished and finished texts of one sentence's beam: how they grow, and when no unfinished
one can still win."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from clearhead.config import BeamConfig
from clearhead.decoding.inputs import DecodeInput
from clearhead.decoding.ranking import Candidate
from clearhead.decoding.results import Branch, Output, StopReason


class Hypothesis(NamedTuple):
    """A text so far: its last token, and the hypothesis before it."""

    before: "Hypothesis | None" = None
    token: int = -1
    log_prob: float = 0.0
    """The log-probability of the last token."""
    total: float = 0.0
    """The log-probability of the whole text."""

    def path(self) -> tuple[list[int], list[float]]:
        """Return the tokens of the text and their log-probabilities."""
        steps, here = [], self
        while here.before is not None:
            steps.append(here)
            here = here.before
        return [step.token for step in steps[::-1]], [step.log_prob for step in steps[::-1]]


EndOf = Callable[["Hypothesis", int], StopReason | None]
"""A function that tells why a hypothesis of this many tokens ends; None: it continues."""


@dataclass(slots=True)
class SentenceBeam:
    """The search for the texts of one input."""

    input: DecodeInput
    max_tokens: int
    """The highest number of tokens that a text can have."""
    slots: list[Hypothesis | None]
    """Unfinished texts. Row i of the model's batch, counted within the sentence, is slot i; None:
    the slot is empty, and what its row computes is ignored."""
    parents: list[int] = field(default_factory=list)
    """The slot of the previous step that each slot continues."""
    length: int = 0
    finished: list[Output] = field(default_factory=list)
    branches: list[Branch] = field(default_factory=list)
    """The branches of the step that is being taken."""

    def totals(self) -> list[float]:
        """Return the log-probability of each slot's text; -inf for an empty slot."""
        return [-inf if slot is None else slot.total for slot in self.slots]

    def begin_step(self) -> list[Hypothesis | None]:
        """Empty the slots, and return their hypotheses."""
        before, self.slots = self.slots, []
        self.parents, self.branches = [], []
        self.length += 1
        return before

    def extend(
        self,
        before: Sequence[Hypothesis | None],
        ranked: Sequence[Candidate],
        width: int,
        end_of: EndOf,
        beam: BeamConfig,
    ) -> None:
        """Fill the next `width` slots from ranked continuations. An end that is among the
        `width` best of them is a finished text; the best `width` others continue."""
        full = len(self.slots) + width
        for rank, candidate in enumerate(ranked):
            old = before[candidate.slot]
            if old is None or candidate.value == -inf:
                break
            total = old.total + candidate.log_prob
            new = Hypothesis(old, candidate.token, candidate.log_prob, total)
            fate, slot = "dropped", None
            if len(self.slots) < full:
                stop = end_of(new, self.length)
                if stop is None:
                    fate, slot = "kept", len(self.slots)
                    self.slots.append(new)
                    self.parents.append(candidate.slot)
                elif rank < width:
                    fate = "finished"
                    tokens, log_probs = new.path()
                    score = total / beam.normaliser(self.length)
                    output = Output(tokens=tokens, log_probs=log_probs, score=score, stop=stop)
                    self.finished.append(output)
            branch = Branch(candidate.slot, candidate.token, candidate.log_prob, total, fate, slot)
            self.branches.append(branch)
        n_empty = full - len(self.slots)
        self.slots += [None] * n_empty
        self.parents += [ranked[0].slot] * n_empty

    def is_settled(self, beam: BeamConfig) -> bool:
        """Tell whether no unfinished hypothesis can still be among the n best, or the beam's
        patience is over.

        Proof: a text that continues a hypothesis with log-probability t ≤ 0 has a log-probability
        of at most t, since every further token adds log p, which is at most 0, and a length of at
        most `max_tokens`. The normaliser does not fall with the length, so that its score is at
        most t / normaliser(max_tokens). Where the n-th best finished score is no less, nothing
        displaces it."""
        best = max(self.totals())
        if best == -inf:
            return True
        n_finished = len(self.finished)
        if n_finished < beam.n_best:
            return False
        if beam.patience is not None and n_finished >= beam.patience * beam.width:
            return True
        nth = sorted((text.score for text in self.finished), reverse=True)[beam.n_best - 1]
        return nth >= best / beam.normaliser(self.max_tokens)

    def best(self, n: int) -> list[Output]:
        """Return the best finished texts. Texts with equal scores are in the order in which they
        were found."""
        return sorted(self.finished, key=lambda text: -text.score)[:n]
