"""Keeps the output of a model's own code out of the report, and counts its lines."""

import contextlib
import io
from collections import deque
from collections.abc import Iterator

_KEPT = 20


class Printed(io.TextIOBase):
    """A stream that counts lines and keeps only the last ones."""

    def __init__(self) -> None:
        super().__init__()
        self.n_lines = 0
        self._last: deque[str] = deque(maxlen=_KEPT)
        self._open = ""

    def writable(self) -> bool:
        """Return True: anything can be written."""
        return True

    def write(self, text: str, /) -> int:
        """Keep the text instead of showing it."""
        *whole, self._open = (self._open + text).split("\n")
        self.n_lines += len(whole)
        self._last.extend(whole)
        return len(text)

    @property
    def tail(self) -> str:
        """Return the last lines."""
        return "\n".join([*self._last, self._open]).strip("\n")


@contextlib.contextmanager
def captured() -> Iterator[Printed]:
    """Keep from standard output everything that is printed inside the block."""
    printed = Printed()
    with contextlib.redirect_stdout(printed):
        yield printed
