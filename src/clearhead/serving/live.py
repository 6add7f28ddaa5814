"""The model behind the live page.

Switching a part off, or moving to another checkpoint, changes the model for the duration of a
request. Therefore, one thread owns the model and answers one request after another.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from clearhead.errors import ConfigError, InputError, function
from clearhead.inspection.decode_for_page import see
from clearhead.inspection.look import Subject
from clearhead.inspection.switches import see_without, switches
from clearhead.models import Classifier
from clearhead.serving.asking import MAX_BEAM, MAX_CHARACTERS, MAX_TOKENS, LookRequest

MAX_SECONDS = 10.0
KEPT_IN_MEMORY = 8  # checkpoints
NamedTensors = Mapping[str, Tensor]


class RequestTimeoutError(InputError):
    """Raised if a request exceeds its time limit."""


class Snapshot(NamedTuple):
    """The weights of a run at one step."""

    step: int
    load: Callable[[], NamedTensors]


class LiveModel:
    """A model, the checkpoints of its run, and the documents that the page requests."""

    def __init__(
        self,
        subject: Subject,
        snapshots: Sequence[Snapshot] = (),
        *,
        seconds: float = MAX_SECONDS,
    ) -> None:
        if isinstance(subject.model, Classifier):
            raise InputError(
                "the live page is for models that generate text or fill in masks; "
                f"{function('see')} shows a classifier"
            )
        self.subject = subject
        self._output = subject.model.output
        self.seconds = seconds
        self._snapshots = {snapshot.step: snapshot for snapshot in snapshots}
        self._own = _weights(subject.model)
        self._now: int | None = None
        self._read: OrderedDict[int, NamedTensors] = OrderedDict()

    def facts(self) -> dict[str, Any]:
        """Return the facts that the page's controls need."""
        return {
            "checkpoints": sorted(self._snapshots),
            "switches": switches(self.subject.model),
            "max_beam": MAX_BEAM,
            "max_characters": MAX_CHARACTERS,
        }

    def answer(self, request: LookRequest, left: threading.Event | None = None) -> dict[str, Any]:
        """Return the document of a request. `left` is set when the browser has disconnected."""
        self._check_length(request)
        subject = self.subject
        with _bounded(self._output, self.seconds, left or threading.Event()):
            self._move_to(request.checkpoint)
            how = request.decoding()
            if request.off:
                replace = "mean" if request.replace == "mean" else "zero"
                return see_without(
                    subject,
                    request.text,
                    request.off,
                    replace=replace,
                    language=request.language,
                    **how,
                )
            return see(subject, request.text, language=request.language, **how)

    def _check_length(self, request: LookRequest) -> None:
        for name, tokenizer in (("text", self.subject.source), ("target", self.subject.target)):
            n_tokens = len(tokenizer.encode(getattr(request, name) or ""))
            if n_tokens > MAX_TOKENS:
                raise InputError(
                    f"the {name} has {n_tokens} tokens, but the live page takes at most "
                    f"{MAX_TOKENS}; shorten it, or write a page to a file with `clearhead see`"
                )

    @torch.no_grad()
    def _move_to(self, step: int | None) -> None:
        """Put the weights of a checkpoint into the model; None: the model's own weights."""
        if step == self._now:
            return
        if step is not None and step not in self._snapshots:
            rule = "is not one of this run's checkpoints"
            raise ConfigError("checkpoint", step, rule, f"choose from {sorted(self._snapshots)}")
        weights = self._own if step is None else self._weights_at(step)
        for name, parameter in self.subject.model.named_parameters():
            parameter.copy_(weights[name])
        self._now = step

    def _weights_at(self, step: int) -> NamedTensors:
        if step not in self._read:
            self._read[step] = self._snapshots[step].load()
        self._read.move_to_end(step)
        while len(self._read) > KEPT_IN_MEMORY:
            self._read.popitem(last=False)
        return self._read[step]


def _weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


@contextmanager
def _bounded(output: nn.Module, seconds: float, left: threading.Event) -> Iterator[None]:
    """End the work inside the block at its next pass through the model if its time is over or the
    browser has disconnected."""
    end = time.monotonic() + seconds

    def check(*_: object) -> None:
        if left.is_set() or time.monotonic() > end:
            raise RequestTimeoutError(f"this took more than {seconds:g} seconds; shorten the text")

    handle = output.register_forward_pre_hook(check)
    try:
        yield
    finally:
        handle.remove()
