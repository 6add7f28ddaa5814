"""What reaches a terminal is text. A control character in a model's output, a corpus, a token's
name or a label could move the cursor, hide what follows, or write to the clipboard: it is shown as
an escape. Only the sequences that rich makes itself pass (`console.py`)."""

import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters (C0, DEL and C1) except the tab and the line feed."""
BREAK = re.compile(r"[\n\r\t\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
"""Characters that a program could take for the end of a line or a column."""


def visible(text: str) -> str:
    """The text with escapes (as in JSON) for its control characters."""
    return CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def one_line(text: str) -> str:
    """The text on one line: line ends become \\r and \\n. Backslashes of the text stay as they are;
    --format jsonl keeps the two apart."""
    return text.replace("\r", "\\r").replace("\n", "\\n")


def as_field(name: str) -> str:
    """Turns a label or another name into one field of one line, wherever it is written."""
    return visible(BREAK.sub(lambda match: repr(match[0])[1:-1], name))


class TextOnly:
    """A terminal that is given no control characters."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Writes the text with escapes for its control characters."""
        self.stream.write(visible(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Writes each of them."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def text_only_terminal() -> Iterator[None]:
    """Inside the block, standard output takes nothing but text where it is a terminal. Files and
    pipes get every byte as it is. Standard error is left to the libraries that draw bars and
    colours there; what clearhead writes to it goes through `visible`."""
    before = sys.stdout
    if before.isatty() and not isinstance(before, TextOnly):
        sys.stdout = cast(TextIO, TextOnly(before))
    try:
        yield
    finally:
        sys.stdout = before


class MayClose:
    """Standard output or standard error whose reader or terminal may leave, or whose disk may be
    full: what cannot be written is discarded."""

    def __init__(self, stream: TextIO, name: str) -> None:
        self.stream, self.name = stream, name

    def write(self, text: str) -> int:
        """Writes the text, as long as it can be written."""
        try:
            self.stream.write(text)
        except OSError as error:
            self._discard(error)
        return len(text)

    def flush(self) -> None:
        """Flushes the stream, as long as it can be written."""
        try:
            self.stream.flush()
        except OSError as error:
            self._discard(error)

    def _discard(self, error: OSError) -> None:
        discard(self.stream)
        if self.name == "standard output":
            what = "the reader has closed standard output"
            if not isinstance(error, BrokenPipeError):
                what = f"standard output cannot be written ({error.strerror})"
            print(f"clearhead: {what}; the command continues without output", file=sys.stderr)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def discard(stream: TextIO) -> None:
    """Sends the rest of a stream nowhere, with what is in its buffer: Python flushes once more when
    it ends, and must find an open file."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


@contextmanager
def output_may_close() -> Iterator[None]:
    """Inside the block, nothing ends because a reader leaves (`| head`), a terminal is closed, or
    the disk under the output is full. For commands that produce files: their output only shows the
    progress."""
    before = sys.stdout, sys.stderr
    sys.stdout = cast(TextIO, MayClose(before[0], "standard output"))
    sys.stderr = cast(TextIO, MayClose(before[1], "standard error"))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
