"""One token after another, for many sequences at once: what greedy decoding and sampling share.

Sequences that have ended leave the batch, and new ones join it from the stream of requests, so
that a long text holds up nobody. A sequence's tokens do not depend on who its neighbours are.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from clearhead.config import DecodeConfig
from clearhead.decoding.constraints import Allowed, constrain
from clearhead.decoding.inputs import Inputs, Request, as_requests
from clearhead.decoding.results import Output, StopReason
from clearhead.decoding.state import Writer, Writing, writer_of
from clearhead.decoding.top import argmax
from clearhead.models import CausalLM, Seq2Seq

Model = Writer | CausalLM | Seq2Seq
MAX_ROWS = 64
"""Sequences that are written side by side, unless told otherwise."""


@dataclass(slots=True)
class Text:
    """A sequence while it is written."""

    request: Request
    written: list[int] = field(default_factory=list)
    allowed: Collection[int] | None = None
    stop: StopReason | None = None
    forgotten: int = 0
    """Tokens at the front that have slid out of the window."""

    @property
    def tokens(self) -> list[int]:
        """All that the model has read or written, prompt included."""
        return self.request.prompt + self.written


class Written(NamedTuple):
    """One more token of the text with this number, or, with `token` None, only its end."""

    number: int
    token: int | None
    log_prob: float
    stop: StopReason | None


Choose = Callable[[Tensor, Sequence[Text]], Sequence[int]]
"""From the scores of the next token (texts, vocab), the next token of each text."""


def greedy(
    model: Model,
    inputs: Inputs,
    config: DecodeConfig,
    *,
    allowed: Allowed | None = None,
    max_rows: int = MAX_ROWS,
) -> list[Output]:
    """The likeliest token at each step; of equally likely ones, the one with the lowest id."""
    events = write(
        model, inputs, config, lambda scores, _: argmax(scores), allowed=allowed, max_rows=max_rows
    )
    return collect(events)


def collect(events: Iterable[Written]) -> list[Output]:
    """Whole texts, in the order of their inputs."""
    tokens: dict[int, list[int]] = {}
    log_probs: dict[int, list[float]] = {}
    outputs: dict[int, Output] = {}
    for index, token, log_prob, stop in events:
        mine, theirs = tokens.setdefault(index, []), log_probs.setdefault(index, [])
        if token is not None:
            mine.append(token)
            theirs.append(log_prob)
        if stop is not None:
            outputs[index] = Output(tokens=mine, log_probs=theirs, score=sum(theirs), stop=stop)
    return [outputs[index] for index in sorted(outputs)]


def write(
    model: Model,
    inputs: Inputs | Iterator[Request],
    config: DecodeConfig,
    choose: Choose,
    *,
    allowed: Allowed | None = None,
    max_rows: int = MAX_ROWS,
) -> Iterator[Written]:
    """Every token in the moment in which it is written. `inputs` may be an endless stream of
    requests: the next is asked for when there is room for it."""
    writer = writer_of(model)
    stream = as_requests(inputs, config, writer.config)
    batch = _Batch(writer.begin(config.max_new), config, writer.config.max_length, allowed)
    while True:
        yield from batch.admit(stream, max_rows)
        if not batch.texts:
            return
        scores = constrain(batch.scores, [text.allowed for text in batch.texts])
        yield from batch.write(choose(scores, batch.texts))


class _Batch:
    """The sequences that are being written, and the scores of their next tokens."""

    def __init__(
        self, state: Writing, config: DecodeConfig, window: int, allowed: Allowed | None
    ) -> None:
        self.state = state
        self.config = config
        self.window = window
        self.allowed = allowed
        self.texts: list[Text] = []  # those that have ended idle until `admit` takes them out
        self.scores = torch.empty(0, 0)

    def admit(self, stream: Iterator[Request], max_rows: int) -> list[Written]:
        """Take out what has ended and let new texts in, once it is worth the copying. Returns the
        ends of those that end before they begin."""
        ended: list[Written] = []
        live = [row for row, text in enumerate(self.texts) if text.stop is None]
        if live and 4 * len(live) > 3 * min(max_rows, len(self.texts)):
            return ended
        new: list[Text] = []
        while len(live) + len(new) < max_rows:
            taken = [Text(request) for request in islice(stream, max_rows - len(live) - len(new))]
            if not taken:
                break
            for text in taken:
                text.allowed = self.allowed([]) if self.allowed else None
                if stop := self._stop_before(text):
                    ended.append(Written(text.request.number, None, 0.0, stop))
                else:
                    new.append(text)
        if len(live) < len(self.texts):
            self._keep(live)
        self._join(new)
        return ended

    @torch.inference_mode()
    def write(self, tokens: Sequence[int]) -> list[Written]:
        """One token more for each, and on to the next scores."""
        index = torch.tensor(tokens, device=self.scores.device)[:, None]
        chosen = self.scores.log_softmax(dim=1).gather(1, index)[:, 0]
        events: list[Written] = []
        for text, token, log_prob in zip(self.texts, tokens, chosen.tolist()):
            if text.stop is None:
                text.written.append(token)
                text.stop = self._stop_after(text)
                events.append(Written(text.request.number, token, log_prob, text.stop))
        if not all(text.stop for text in self.texts):
            full = [text for text in self.texts if self._is_full(text)]
            self.scores = self._slide(index, full) if full else self.state.advance(index)[:, 0]
        return events

    def _stop_before(self, text: Text) -> StopReason | None:
        if self.config.max_new == 0:
            return "length"
        if len(text.tokens) >= self.window and self.config.window == "stop":
            return "window"
        return "constraint" if text.allowed is not None and not text.allowed else None

    def _stop_after(self, text: Text) -> StopReason | None:
        if text.written[-1] == self.config.eos_id:
            return "end"
        if len(text.written) == self.config.max_new:
            return "length"
        if len(text.tokens) == self.window and self.config.window == "stop":
            return "window"
        text.allowed = self.allowed(text.written) if self.allowed else None
        return "constraint" if text.allowed is not None and not text.allowed else None

    def _is_full(self, text: Text) -> bool:
        """Its next token would stand beyond the last position."""
        return text.stop is None and len(text.tokens) - text.forgotten > self.window

    def _slide(self, tokens: Tensor, full: list[Text]) -> Tensor:
        """What is full forgets the older half of its window and is read again; the others go on."""
        going_on = [row for row, text in enumerate(self.texts) if text not in full]
        scores = None
        if going_on:
            self.state.keep(going_on)
            scores = self.state.advance(tokens[going_on])[:, 0]
        else:
            self.state.keep([])
        self.texts = [self.texts[row] for row in going_on]
        self.scores = torch.empty(0, 0) if scores is None else scores
        for text in full:
            text.forgotten = len(text.tokens) - (self.window + 1) // 2
        self._join(full)
        return self.scores

    def _keep(self, rows: list[int]) -> None:
        self.state.keep(rows)
        self.texts = [self.texts[row] for row in rows]
        self.scores = self.scores[rows]

    def _join(self, new: list[Text]) -> None:
        if not new:
            return
        prompts = [text.tokens[text.forgotten :] for text in new]
        sources = [text.request.source for text in new if text.request.source is not None]
        scores = self.state.join(prompts, sources or None)[:, 0]
        self.scores = torch.cat((self.scores, scores)) if self.texts else scores
        self.texts = self.texts + new
