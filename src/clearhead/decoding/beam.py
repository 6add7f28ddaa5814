"""Beam search follows several unfinished texts in parallel, and keeps the best of them at each
step.

These are the rules on points where implementations differ:

- At each step all continuations of all hypotheses are ranked (`ranking.rank`). An end that is among
  the `width` best is a finished text; the best `width` others stay (`SentenceBeam.extend`).
- At `max_new` tokens, or where the window or the constraint ends, a hypothesis is finished too.
- A finished text's score is its log-probability over the length penalty, its end included. Texts
  with equal scores are in the order in which they were found; of equal continuations, the one of
  the better hypothesis comes first, then the one with the lower id.
- The search of a sentence ends when patience · width texts have finished, or when no unfinished
  hypothesis can reach the n best (`SentenceBeam.is_settled`), whichever is first.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from clearhead.config import BeamConfig, DecodeConfig
from clearhead.config.checks import check_at_least
from clearhead.decoding.cached import CachedModel, GenerativeModel
from clearhead.decoding.constraints import (
    Constraints,
    allows_nothing,
    constrain,
    constraint_of,
)
from clearhead.decoding.hypotheses import EndOf, Hypothesis, SentenceBeam
from clearhead.decoding.inputs import DecodeInput, TokenRows, as_inputs
from clearhead.decoding.ranking import rank
from clearhead.decoding.results import BeamStep, Output, StopReason, Watch
from clearhead.errors import ConfigError

MAX_SENTENCES = 32
"""The number of inputs that are searched in one batch by default."""


def beam_search(
    model: GenerativeModel,
    inputs: TokenRows,
    config: DecodeConfig,
    beam: BeamConfig = BeamConfig(),  # noqa: B008 (frozen)
    *,
    constraint: Constraints = None,
    watch: Watch | None = None,
    max_sentences: int = MAX_SENTENCES,
) -> list[list[Output]]:
    """Return the n best texts of each input, the best first. There are fewer only if fewer are
    possible."""
    search = BeamSearch(model, config, beam, constraint, watch)
    outputs = dict(search.run(inputs, max_sentences))
    return [outputs[number] for number in sorted(outputs)]


class BeamSearch:
    """Searches for many inputs at once: sentences join the batch, and leave it as they finish."""

    def __init__(
        self,
        model: GenerativeModel,
        config: DecodeConfig,
        beam: BeamConfig,
        constraint: Constraints = None,
        watch: Watch | None = None,
    ) -> None:
        self.model, self.config, self.beam = model, config, beam
        self.constraint, self.watch = constraint, watch
        if config.window == "slide":
            rule = "cannot be searched: hypotheses share their past"
            raise ConfigError("window", "slide", rule, "use 'stop'")

    def run(
        self, inputs: TokenRows | Iterator[DecodeInput], max_sentences: int = MAX_SENTENCES
    ) -> Iterator[tuple[int, list[Output]]]:
        """Yield each input's number and n best texts as soon as they are known. `inputs` may be an
        endless iterator."""
        check_at_least("max_sentences", max_sentences, 1)
        width = self.beam.width
        waiting = as_inputs(inputs, self.config, self.model.config)
        cached = CachedModel(self.model, rows_per_input=width)
        sentences: list[SentenceBeam] = []
        scores = torch.empty(0, width, 0)
        n_admitted = 0
        while True:
            # New sentences join once a quarter of the places is free, so that they are read
            # together.
            if not sentences or 4 * len(sentences) <= 3 * min(max_sentences, n_admitted):
                new: list[SentenceBeam] = []
                while len(sentences) + len(new) < max_sentences:
                    if (decode_input := next(waiting, None)) is None:
                        break
                    if (stop := self._stop_before(decode_input)) is None:
                        new.append(self._begin(decode_input))
                    else:
                        yield (
                            decode_input.number,
                            [Output(tokens=[], log_probs=[], score=0.0, stop=stop)],
                        )
                if new:
                    read = [sentence.input for sentence in new]
                    sources = [text.source for text in read if text.source is not None]
                    joined = cached.join([text.prompt for text in read], sources or None)
                    joined = joined[:, None].expand(-1, width, -1)
                    scores = torch.cat((scores, joined)) if sentences else joined
                    sentences = sentences + new
                n_admitted = len(sentences)
            if not sentences:
                return
            self._step(sentences, scores)
            settled = [sentence.is_settled(self.beam) for sentence in sentences]
            for sentence, is_settled in zip(sentences, settled):
                if is_settled:
                    yield sentence.input.number, sentence.best(self.beam.n_best)
            indices = [index for index, is_settled in enumerate(settled) if not is_settled]
            sentences = [sentences[index] for index in indices]
            scores = self._next_scores(cached, sentences, indices)

    def _stop_before(self, decode_input: DecodeInput) -> StopReason | None:
        """Return why an input ends before any search."""
        if self.config.max_new == 0:
            return "length"
        if self._max_tokens(decode_input) == 0:
            return "window"
        return "constraint" if self._is_stuck(decode_input, []) else None

    def _max_tokens(self, decode_input: DecodeInput) -> int:
        return min(self.config.max_new, self.model.config.max_length - len(decode_input.prompt))

    def _begin(self, decode_input: DecodeInput) -> SentenceBeam:
        """Begin with one empty text, in the first slot of each group."""
        per_group = self.beam.width // self.beam.groups
        slots = [None if n % per_group else Hypothesis() for n in range(self.beam.width)]
        return SentenceBeam(decode_input, self._max_tokens(decode_input), slots)

    def _is_stuck(self, decode_input: DecodeInput, new: list[int]) -> bool:
        constraint = constraint_of(self.constraint, decode_input.number)
        return constraint is not None and allows_nothing(constraint(new))

    @torch.inference_mode()
    def _step(self, sentences: list[SentenceBeam], scores: Tensor) -> None:
        """Take one more token for every hypothesis of every sentence."""
        log_probs = scores.log_softmax(dim=2)
        permitted = self._permitted(sentences, log_probs)
        totals = scores.new_tensor([sentence.totals() for sentence in sentences])
        before = [sentence.begin_step() for sentence in sentences]
        per_group = self.beam.width // self.beam.groups
        for group in range(self.beam.groups):
            first = group * per_group
            slots = slice(first, first + per_group)
            ranked_by = permitted[:, slots]
            if group and self.beam.diversity:
                ranked_by = self._less_what_was_chosen(sentences, ranked_by)
            # At least n of 2n candidates are not the end.
            ranked = rank(log_probs[:, slots], ranked_by, totals[:, slots], 2 * per_group, first)
            for sentence, old, candidates in zip(sentences, before, ranked):
                sentence.extend(old, candidates, per_group, self._end_of(sentence), self.beam)
        if self.watch is not None:
            for sentence in sentences:
                self.watch(BeamStep(sentence.input.number, sentence.length, sentence.branches))

    def _permitted(self, sentences: list[SentenceBeam], log_probs: Tensor) -> Tensor:
        """Return `log_probs`, with -inf for tokens that the constraint does not allow."""
        if self.constraint is None:
            return log_probs
        allowed = [
            None if slot is None or constraint is None else constraint(slot.path()[0])
            for sentence in sentences
            for constraint in [constraint_of(self.constraint, sentence.input.number)]
            for slot in sentence.slots
        ]
        return constrain(log_probs.flatten(0, 1), allowed).view_as(log_probs)

    def _less_what_was_chosen(self, sentences: list[SentenceBeam], ranked_by: Tensor) -> Tensor:
        """Subtract `diversity` from the score of a token for each time that earlier groups have
        just chosen the token."""
        ranked_by = ranked_by.clone()
        for row, sentence in zip(ranked_by, sentences):
            for slot in sentence.slots:
                if slot is not None:
                    row[:, slot.token] -= self.beam.diversity
        return ranked_by

    def _end_of(self, sentence: SentenceBeam) -> EndOf:
        at_limit: StopReason = "length" if sentence.max_tokens == self.config.max_new else "window"

        def end_of(hypothesis: Hypothesis, length: int) -> StopReason | None:
            if hypothesis.token == self.config.eos_id:
                return "end"
            if length == sentence.max_tokens:
                return at_limit
            if self.constraint is not None and self._is_stuck(sentence.input, hypothesis.path()[0]):
                return "constraint"
            return None

        return end_of

    def _next_scores(
        self, cached: CachedModel, sentences: list[SentenceBeam], indices: list[int]
    ) -> Tensor:
        """Give the model the tokens that each hypothesis has chosen. `indices` are the places of
        the sentences in the previous batch."""
        width = self.beam.width
        if not sentences:
            cached.keep([])
            return torch.empty(0, width, 0)
        rows = [
            index * width + parent
            for sentence, index in zip(sentences, indices)
            for parent in sentence.parents
        ]
        tokens = [0 if s is None else s.token for sentence in sentences for s in sentence.slots]
        return cached.step(tokens, rows).unflatten(0, (len(sentences), width))
