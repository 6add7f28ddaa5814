"""Generates one token after another, for many texts at once. Greedy decoding and sampling use this
module.

Texts that have ended leave the batch, and new ones join it, so that a long text does not delay
others. A text's tokens do not depend on the rest of the batch."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from clearhead.config import DecodeConfig
from clearhead.config.checks import check_at_least
from clearhead.decoding.cached import CachedModel, GenerativeModel
from clearhead.decoding.constraints import (
    Constraints,
    NextTokens,
    allows_nothing,
    constrain,
    constraint_of,
)
from clearhead.decoding.inputs import DecodeInput, TokenRows, as_inputs
from clearhead.decoding.ranking import argmax
from clearhead.decoding.results import Output, StopReason

MAX_ROWS = 64
"""The number of texts that are decoded in one batch by default."""


@dataclass(slots=True)
class RunningText:
    """A text that is being decoded."""

    input: DecodeInput
    new: list[int] = field(default_factory=list)
    allowed: NextTokens = None
    stop: StopReason | None = None
    forgotten: int = 0
    """The number of tokens at the front that have slid out of the window."""

    @property
    def tokens(self) -> list[int]:
        """The prompt and the new tokens."""
        return self.input.prompt + self.new


class NewToken(NamedTuple):
    """One more token of the text with this number, or only its end if `token` is None."""

    number: int
    token: int | None
    log_prob: float
    stop: StopReason | None


Choose = Callable[[Tensor, Sequence[RunningText]], Sequence[int]]
"""A function that chooses the next token of each text from its scores (texts, vocab)."""


def greedy(
    model: GenerativeModel,
    inputs: TokenRows,
    config: DecodeConfig,
    *,
    constraint: Constraints = None,
    max_rows: int = MAX_ROWS,
) -> list[Output]:
    """Choose the likeliest token at each step; if several tokens are equally likely, choose the one
    with the lowest id."""
    return collect(
        decode_tokens(
            model,
            inputs,
            config,
            lambda scores, _: argmax(scores),
            constraint=constraint,
            max_rows=max_rows,
        )
    )


def collect(events: Iterable[NewToken]) -> list[Output]:
    """Collect whole texts, in the order of their inputs."""
    tokens: dict[int, list[int]] = {}
    log_probs: dict[int, list[float]] = {}
    outputs: dict[int, Output] = {}
    for number, token, log_prob, stop in events:
        own, own_log_probs = tokens.setdefault(number, []), log_probs.setdefault(number, [])
        if token is not None:
            own.append(token)
            own_log_probs.append(log_prob)
        if stop is not None:
            score = sum(own_log_probs)
            outputs[number] = Output(tokens=own, log_probs=own_log_probs, score=score, stop=stop)
    return [outputs[number] for number in sorted(outputs)]


def decode_tokens(
    model: GenerativeModel,
    inputs: TokenRows | Iterator[DecodeInput],
    config: DecodeConfig,
    choose: Choose,
    *,
    constraint: Constraints = None,
    max_rows: int = MAX_ROWS,
) -> Iterator[NewToken]:
    """Yield every token as soon as it is chosen. `inputs` may be an endless iterator: the next
    input is read when there is a place for it."""
    check_at_least("max_rows", max_rows, 1)
    waiting = as_inputs(inputs, config, model.config)
    batch = _RunningBatch(CachedModel(model), config, constraint)
    while True:
        yield from batch.admit(waiting, max_rows)
        if not batch.texts:
            return
        scores = constrain(batch.scores, [text.allowed for text in batch.texts])
        yield from batch.take(choose(scores, batch.texts))


class _RunningBatch:
    """The unfinished texts, and the scores of their next tokens."""

    def __init__(self, cached: CachedModel, config: DecodeConfig, constraint: Constraints) -> None:
        self.cached = cached
        self.config = config
        self.window = cached.config.max_length
        self.constraint = constraint
        self.texts: list[RunningText] = []
        self.scores = torch.empty(0, 0)
        self.n_admitted = 0  # texts after the last `admit`

    def admit(self, waiting: Iterator[DecodeInput], max_rows: int) -> list[NewToken]:
        """Admit new texts once a quarter of the places is free, so that they are read together.
        Returns the ends of texts that end before they begin."""
        ended: list[NewToken] = []
        if self.texts and 4 * len(self.texts) > 3 * min(max_rows, self.n_admitted):
            return ended
        new: list[RunningText] = []
        while n_free := max_rows - len(self.texts) - len(new):
            taken = [RunningText(decode_input) for decode_input in islice(waiting, n_free)]
            if not taken:
                break
            for text in taken:
                text.allowed = self._allowed(text)
                if stop := self._stop_before(text):
                    ended.append(NewToken(text.input.number, None, 0.0, stop))
                else:
                    new.append(text)
        self._join(new)
        self.n_admitted = len(self.texts)
        return ended

    @torch.inference_mode()
    def take(self, tokens: Sequence[int]) -> list[NewToken]:
        """Take one more token for each text. Texts that end leave the batch; the others get their
        next scores."""
        index = torch.tensor(tokens, device=self.scores.device)[:, None]
        chosen = self.scores.log_softmax(dim=1).gather(1, index)[:, 0]
        events: list[NewToken] = []
        for text, token, log_prob in zip(self.texts, tokens, chosen.tolist()):
            text.new.append(token)
            text.stop = self._stop_after(text)
            events.append(NewToken(text.input.number, token, log_prob, text.stop))
        full = [text for text in self.texts if self._is_full(text)]
        rows = [
            row
            for row, text in enumerate(self.texts)
            if text.stop is None and not self._is_full(text)
        ]
        if rows:
            self.scores = self.cached.step([tokens[row] for row in rows], rows)
        else:
            self.cached.keep([])
        self.texts = [self.texts[row] for row in rows]
        for text in full:  # the older half of the window is dropped, and the rest is read again
            text.forgotten = len(text.tokens) - (self.window + 1) // 2
        self._join(full)
        return events

    def _stop_before(self, text: RunningText) -> StopReason | None:
        if self.config.max_new == 0:
            return "length"
        if len(text.tokens) >= self.window and self.config.window == "stop":
            return "window"
        return "constraint" if allows_nothing(text.allowed) else None

    def _allowed(self, text: RunningText) -> NextTokens:
        constraint = constraint_of(self.constraint, text.input.number)
        return None if constraint is None else constraint(text.new)

    def _stop_after(self, text: RunningText) -> StopReason | None:
        if text.new[-1] == self.config.eos_id:
            return "end"
        if len(text.new) == self.config.max_new:
            return "length"
        if len(text.tokens) == self.window and self.config.window == "stop":
            return "window"
        text.allowed = self._allowed(text)
        return "constraint" if allows_nothing(text.allowed) else None

    def _is_full(self, text: RunningText) -> bool:
        """Tell whether the text's next token would be beyond the last position."""
        return text.stop is None and len(text.tokens) - text.forgotten > self.window

    def _join(self, new: list[RunningText]) -> None:
        if not new:
            return
        prompts = [text.tokens[text.forgotten :] for text in new]
        sources = [text.input.source for text in new if text.input.source is not None]
        scores = self.cached.join(prompts, sources or None)
        self.scores = torch.cat((self.scores, scores)) if self.texts else scores
        self.texts = self.texts + new
