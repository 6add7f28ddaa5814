"""Reads JSON of any layout as a stream of values: one list, or objects one after another."""

import json
from collections.abc import Iterator
from typing import Any

from clearhead.errors import DataError
from clearhead.intake.recognise import conversion, guess_encoding
from clearhead.intake.unpack import READ_SIZE, OneRecord, OpenedFile, text_of

AROUND_ALL = "if one object holds all of them, write the list inside it to a file (jq .NAME)"
BLANKS = " \t\r\n"
DECODER = json.JSONDecoder()
CUT = 12
"""An error may be due to the cut if it lies within this many characters of the end of what was
read: `-Infinity`, and a character that is spelt by its number, are shorter."""


def read_values(file: OpenedFile) -> Iterator[Any]:
    """Yield the elements of the list that the file contains, or the values that follow one another
    in it, each on one or several lines. Only one value is in memory at a time."""
    text = _Text(file)
    is_list = text.take("[")
    if is_list and text.take("]"):
        return
    while text.has_more():
        yield text.value()
        if is_list and not text.take(","):
            break
    if is_list and not text.take("]"):
        missing = "a comma is missing before this" if text.has_more() else "the list does not end"
        raise text.error(missing)
    if text.has_more():
        raise text.error(
            "something follows the list; if each line is a list, rename the file to end in .jsonl"
        )


class _Text:
    """Text that was read from a file and not yet parsed."""

    def __init__(self, file: OpenedFile) -> None:
        self.path = file.path
        self.record = OneRecord(file, AROUND_ALL)
        # Bytes that are not UTF-8 are lone surrogates here; the reader of a record turns them into
        # bytes again.
        self.stream = text_of(self.record, "utf-8-sig", "surrogateescape")
        self.text, self.at, self.line = "", 0, 1

    def value(self) -> Any:
        """Return the next value."""
        while True:
            try:
                decoded, end = DECODER.raw_decode(self.text, self.at)
            except json.JSONDecodeError as error:
                cut = error.msg.startswith("Unterminated") or error.pos > len(self.text) - CUT
                if not cut or not self._read():
                    self.at = error.pos
                    raise self.error(error.msg) from None
            except RecursionError:
                raise self.error("the values are nested too deeply") from None
            except ValueError as error:  # the number has thousands of digits
                raise self.error(str(error)) from None
            else:
                if end < len(self.text) or not self._read():  # otherwise, a number might continue
                    self.at = end
                    self.record.begin()
                    return decoded

    def take(self, character: str) -> bool:
        """Tell whether this character comes next; if so, move past it."""
        if not self.has_more() or self.text[self.at] != character:
            return False
        self.at += 1
        return True

    def has_more(self) -> bool:
        """Tell whether anything but white space follows; move past the white space."""
        while True:
            while self.at < len(self.text) and self.text[self.at] in BLANKS:
                self.at += 1
            if self.at < len(self.text) or not self._read():
                return self.at < len(self.text)

    def error(self, what: str) -> DataError:
        """Return an error that says that the file is not JSON, and where."""
        line = self.line + self.text.count("\n", 0, self.at)
        raw = self.text.encode("utf-8", "surrogateescape")
        if (encoding := guess_encoding(raw)) is not None:
            made = conversion(self.path, encoding)
            return DataError(f"{self.path} looks like {encoding}; convert it to UTF-8: {made}")
        return DataError(
            f"{self.path}, line {line}: this is not JSON ({what}); was it copied whole, or edited "
            "by hand?"
        )

    def _read(self) -> bool:
        """Read more text: as much as there is already, so that a long value is not parsed too
        often."""
        more = self.stream.read(max(READ_SIZE, len(self.text) - self.at))
        if more:
            self.line += self.text.count("\n", 0, self.at)
            self.text, self.at = self.text[self.at :] + more, 0
        return bool(more)
