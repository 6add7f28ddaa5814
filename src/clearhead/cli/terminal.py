"""Lets only text reach a terminal. A control character in a model's output, a corpus, a token's
name or a label could move the cursor, hide the text after it, or write to the clipboard, so it is
shown as an escape. Only the sequences that rich makes itself pass (`console.py`)."""

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
    """Replace the control characters of a text by escapes, as in JSON."""
    return CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def one_line(text: str) -> str:
    """The text on one line: line ends become \\r and \\n. Backslashes of the text stay as they are;
    --format jsonl keeps the two apart."""
    return text.replace("\r", "\\r").replace("\n", "\\n")


def as_field(name: str) -> str:
    """Turn a label or another name into one field of one line, wherever it is printed."""
    return visible(BREAK.sub(lambda match: repr(match[0])[1:-1], name))


class TextOnly:
    """A terminal to which no control characters are sent."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Writes the text with escapes for its control characters."""
        self.stream.write(visible(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Writes each of the lines."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def text_only_terminal() -> Iterator[None]:
    """Inside the block, standard output takes only text if it is a terminal. Files and pipes get
    every byte unchanged. Standard error stays as it is, since libraries draw bars and colours
    there; clearhead's own messages go through `visible`."""
    before = sys.stdout
    if before.isatty() and not isinstance(before, TextOnly):
        sys.stdout = cast(TextIO, TextOnly(before))
    try:
        yield
    finally:
        sys.stdout = before


class MayClose:
    """Standard output or standard error. Its reader or its terminal may go away, or its disk may be
    full: text that cannot be written is discarded."""

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
    """Discard the rest of a stream and the content of its buffer. Python flushes once more when it
    ends, and must then find an open file."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


@contextmanager
def output_may_close() -> Iterator[None]:
    """Inside the block, the command continues if the reader of its output goes away (`| head`), the
    terminal is closed, or the disk is full. This is for commands that produce files, whose output
    only shows the progress."""
    before = sys.stdout, sys.stderr
    sys.stdout = cast(TextIO, MayClose(before[0], "standard output"))
    sys.stderr = cast(TextIO, MayClose(before[1], "standard error"))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
