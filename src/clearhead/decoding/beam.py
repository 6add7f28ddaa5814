"""Beam search: several unfinished texts side by side, the best of them kept at each step.

Rules, where implementations differ:

- At each step all continuations of all hypotheses are ranked. An end that stands among the `width`
  best is a finished text; the best `width` others go on.
- At `max_new` tokens, or where the window or the constraint ends, a hypothesis is finished too.
- A finished text's score is its log-probability over the length penalty, its end included. Equal
  scores stand in the order in which they were found; equal continuations, the one of the better
  hypothesis first, then the one with the lower id.
- The search of a sentence ends when patience · width texts have finished, or when no unfinished
  hypothesis can reach the n best (see `_is_settled`), whichever is first.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from typing import NamedTuple

import torch
from torch import Tensor

from clearhead.config import BeamConfig, DecodeConfig
from clearhead.decoding.constraints import Allowed, constrain
from clearhead.decoding.inputs import Inputs, Request, as_requests
from clearhead.decoding.results import BeamStep, Output, StopReason, beam_step
from clearhead.decoding.state import writer_of
from clearhead.decoding.top import top_of_group
from clearhead.decoding.writing import Model
from clearhead.errors import ConfigError

MAX_SENTENCES = 32  # searched side by side, unless told otherwise


class Hypothesis(NamedTuple):
    """A text so far, as its last token behind another hypothesis."""

    before: "Hypothesis | None" = None
    token: int = -1
    log_prob: float = 0.0
    total: float = 0.0

    def path(self) -> tuple[list[int], list[float]]:
        """Its tokens and their log-probabilities."""
        steps, here = [], self
        while here.before is not None:
            steps.append(here)
            here = here.before
        return [step.token for step in steps[::-1]], [step.log_prob for step in steps[::-1]]


DEAD = Hypothesis(total=-inf)


@dataclass(slots=True)
class Sentence:
    """One input, and the search for its texts."""

    request: Request
    room: int
    """Tokens that a text can have at most."""
    at_room: StopReason
    live: list[Hypothesis] = field(default_factory=lambda: [Hypothesis()])
    length: int = 0
    finished: list[Output] = field(default_factory=list)
    history: list[BeamStep] = field(default_factory=list)
    done: bool = False
    told: bool = False


def beam_search(
    model: Model,
    inputs: Inputs,
    config: DecodeConfig,
    beam: BeamConfig = BeamConfig(),  # noqa: B008 (frozen)
    *,
    allowed: Allowed | None = None,
    with_history: bool = False,
    max_sentences: int = MAX_SENTENCES,
) -> list[list[Output]]:
    """For each input its n best texts, the best first. Fewer only where fewer are possible."""
    search = Search(model, config, beam, allowed, with_history)
    found = dict(search.run(inputs, max_sentences))
    return [found[index] for index in sorted(found)]


class Search:
    def __init__(
        self,
        model: Model,
        config: DecodeConfig,
        beam: BeamConfig,
        allowed: Allowed | None = None,
        with_history: bool = False,
    ) -> None:
        self.writer, self.config, self.beam = writer_of(model), config, beam
        self.allowed, self.with_history = allowed, with_history
        if config.window == "slide":
            rule = "cannot be searched: hypotheses share their past"
            raise ConfigError("window", "slide", rule, "use 'stop'")

    def run(
        self, inputs: Inputs | Iterator[Request], max_sentences: int = MAX_SENTENCES
    ) -> Iterator[tuple[int, list[Output]]]:
        """Each input's index and n best texts, as soon as they are known. `inputs` may be a stream
        of requests without end."""
        stream = as_requests(inputs, self.config, self.writer.config)
        state = self.writer.begin(min(self.config.max_new, 32) * self.beam.width)
        sentences: list[Sentence] = []
        scores = torch.empty(0, 1, 0)
        while True:
            live = [row for row, sentence in enumerate(sentences) if not sentence.done]
            if 4 * len(live) <= 3 * min(max_sentences, len(sentences)):
                new = [self._begin(each) for each in islice(stream, max_sentences - len(live))]
                yield from ((each.request.number, self._best(each)) for each in new if each.done)
                new = [sentence for sentence in new if not sentence.done]
                if len(live) < len(sentences):
                    state.keep(live)
                    sentences, scores = [sentences[row] for row in live], scores[live]
                if new:
                    sources = [each.request.source for each in new if each.request.source]
                    joined = state.join([each.request.prompt for each in new], sources or None)
                    joined = joined.expand(-1, state.width, -1)
                    scores = torch.cat((scores, joined)) if sentences else joined
                    sentences = sentences + new
            if not sentences:
                return
            tokens, parents = self._step(sentences, scores)
            for sentence in sentences:
                if sentence.done and not sentence.told:
                    sentence.live, sentence.told = [], True
                    yield sentence.request.number, self._best(sentence)
            if not all(sentence.done for sentence in sentences):
                scores = state.advance(tokens, parents)

    def _begin(self, request: Request) -> Sentence:
        room = min(self.config.max_new, self.writer.config.max_length - len(request.prompt))
        sentence = Sentence(request, room, "length" if room == self.config.max_new else "window")
        if room == 0 or (self.allowed is not None and self._is_stuck([])):
            stop = sentence.at_room if room == 0 else "constraint"
            sentence.finished.append(Output(tokens=[], log_probs=[], score=0.0, stop=stop))
            sentence.done = True
        return sentence

    def _is_stuck(self, written: list[int]) -> bool:
        after = self.allowed(written) if self.allowed else None
        return after is not None and not after

    @torch.inference_mode()
    def _step(self, sentences: list[Sentence], scores: Tensor) -> tuple[Tensor, ...]:
        """Let every sentence take its step; what each hypothesis writes, and which one it goes on
        from. Where fewer than `width` can go on, the first fills their places and is ignored."""
        n, width, vocab = scores.shape
        log_probs = free = scores.log_softmax(dim=2)
        before = [[*s.live, *[DEAD] * (width - len(s.live))] for s in sentences]
        totals = scores.new_tensor([[h.total for h in row] for row in before])
        if self.allowed is not None:
            followers = [
                None if h.total == -inf else self.allowed(h.path()[0])
                for row in before
                for h in row
            ]
            free = constrain(log_probs.flatten(0, 1), followers).view(n, width, vocab)
        per_group = self.beam.width // self.beam.groups
        after: list[list[tuple[int, Hypothesis]]] = [[] for _ in sentences]
        for group in range(self.beam.groups):
            # At the first step there is one hypothesis, and every group goes on from it.
            first = 0 if width == 1 else group * per_group
            mine = slice(first, first + (1 if width == 1 else per_group))
            pool = free[:, mine]
            if group and self.beam.diversity:
                pool = pool.clone()
                for row, taken in enumerate(after):
                    for _, hypothesis in taken:
                        pool[row, :, max(0, hypothesis.token)] -= self.beam.diversity
            k = min(2 * per_group, pool.shape[1] * vocab)
            values, indices = top_of_group(pool, totals[:, mine], k)
            own = log_probs[:, mine].flatten(1).gather(1, indices)
            columns = (values, indices // vocab + first, indices % vocab, own)
            for row, ranked in enumerate(zip(*(column.tolist() for column in columns))):
                if not sentences[row].done:
                    new = self._extend(sentences[row], list(zip(*ranked)), per_group)
                    after[row] += new + [(first, DEAD)] * (per_group - len(new))
        for sentence, row in zip(sentences, after):
            if sentence.done:
                continue
            sentence.length += 1
            sentence.live = [h for _, h in row] if any(h is not DEAD for _, h in row) else []
            if self.with_history:
                alive = ((h.token, parent, h.total) for parent, h in row if h is not DEAD)
                sentence.history.append(beam_step(alive))
            sentence.done = self._is_settled(sentence)
        idle = [(0, DEAD)] * self.beam.width
        moves = [[(max(0, h.token), parent) for parent, h in row or idle] for row in after]
        return torch.tensor(moves, device=scores.device).unbind(dim=2)

    def _extend(
        self, sentence: Sentence, ranked: Sequence[tuple[float, int, int, float]], width: int
    ) -> list[tuple[int, Hypothesis]]:
        """Sort a group's ranked continuations into finished texts and hypotheses that go on, each
        with the hypothesis that it comes from."""
        going_on: list[tuple[int, Hypothesis]] = []
        length = sentence.length + 1
        for rank, (value, parent, token, log_prob) in enumerate(ranked):
            if value == -inf or len(going_on) == width:
                break
            old = sentence.live[parent]
            new = Hypothesis(old, token, log_prob, old.total + log_prob)
            stop: StopReason | None = None
            if token == self.config.eos_id:
                stop = "end"
            elif length == sentence.room:
                stop = sentence.at_room
            elif self.allowed is not None and self._is_stuck(new.path()[0]):
                stop = "constraint"
            if stop is None:
                going_on.append((parent, new))
            elif rank < width:
                (tokens, each), score = new.path(), new.total / self.beam.normaliser(length)
                text = Output(tokens=tokens, log_probs=each, score=score, stop=stop)
                sentence.finished.append(text)
        return going_on

    def _is_settled(self, sentence: Sentence) -> bool:
        """No unfinished hypothesis can still be among the n best.

        Proof: a text that comes of a hypothesis with log-probability t ≤ 0 has a log-probability of
        at most t, since every further token adds a logarithm of at most 1, and a length of at most
        `room`. The normaliser does not fall with the length, so that its score is at most
        t / normaliser(room). Where the n-th best finished score is no less, nothing displaces it.
        """
        if not sentence.live:
            return True
        patience, n_finished = self.beam.patience, len(sentence.finished)
        if n_finished < self.beam.n_best:
            return False
        if patience is not None and n_finished >= patience * self.beam.width:
            return True
        nth = sorted((text.score for text in sentence.finished), reverse=True)[self.beam.n_best - 1]
        best = max(hypothesis.total for hypothesis in sentence.live)
        return nth >= best / self.beam.normaliser(sentence.room)

    def _best(self, sentence: Sentence) -> list[Output]:
        ranked = sorted(sentence.finished, key=lambda text: -text.score)[: self.beam.n_best]
        if self.with_history:
            for text in ranked:
                text.history.extend(sentence.history)
        return ranked
