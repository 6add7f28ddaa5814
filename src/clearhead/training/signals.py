"""Requests to stop: a signal, or the end of the time limit. Nothing is interrupted, because the
loop checks for requests after each step."""

import signal
import threading
import time
from types import FrameType

STOPPED = 75
"""The exit code of a run that stopped before its last step and can be resumed (EX_TEMPFAIL)."""


class StopRequests:
    """Catches SIGTERM and SIGINT while the block runs in the main thread. Further signals change
    nothing: files that are being written are finished."""

    def __init__(self, max_minutes: float | None = None) -> None:
        self.deadline = None if max_minutes is None else time.monotonic() + 60 * max_minutes
        self.signal: str | None = None

    def __enter__(self) -> "StopRequests":
        # Signals reach the main thread, and no other thread can ask for them.
        here = threading.current_thread() is threading.main_thread()
        numbers = (signal.SIGTERM, signal.SIGINT) if here else ()
        self._before = {number: signal.signal(number, self._note) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.signal = signal.Signals(number).name

    @property
    def reason(self) -> str | None:
        """The reason to stop; None: no request."""
        if self.signal is None and self.deadline is not None and time.monotonic() > self.deadline:
            return "max_minutes"
        return self.signal
