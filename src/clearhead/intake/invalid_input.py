"""Defines what counts as invalid input in text. Invalid input either raises an error that names its
place, or is counted."""

import json
from collections import Counter
from collections.abc import Container, Mapping
from pathlib import Path
from typing import NamedTuple

from clearhead.config.data import DataConfig, InvalidInput
from clearhead.errors import DataError, setting
from clearhead.intake.recognise import conversion, guess_encoding, rewriting

# counted together with the kinds of invalid input: strings that the recipe leaves out
DROPPED = "dropped"


class Place(NamedTuple):
    """The place of a document. Lines, and rows of a table, are numbered from 1."""

    path: Path
    line: int
    """The number of the line, by which splits are made."""
    shown: int | None = None
    """The number that other programs show, if it differs: the line of a CSV file, in which a header
    and the line ends of quoted cells count."""
    unit: str = "line"

    @property
    def where(self) -> str:
        """Describe the place, such as "line 12"."""
        return f"{self.unit} {self.number}"

    @property
    def number(self) -> int:
        """The number to show."""
        return self.line if self.shown is None else self.shown

    def __str__(self) -> str:
        return f"{self.path}, {self.where}"


class Sieve:
    """Passes valid text. Invalid input is an error unless the configuration skips its kind."""

    def __init__(self, config: DataConfig) -> None:
        self.config = config
        self.counts: Counter[str] = Counter()
        self.lines: Container[int] | None = None
        """The lines of the current file that belong to the split; None: all lines. Other lines are
        checked when their own split is read."""
        self.has_recipe = True
        """True if there is a recipe in which the user could name more kinds to skip."""

    def wants(self, place: Place) -> bool:
        """Tell whether this line or row belongs to the split."""
        return self.lines is None or place.line in self.lines

    def reject(
        self, kind: InvalidInput, place: Place, what: str, encoding: str | None = None
    ) -> None:
        """Count the invalid input if its kind is skipped; otherwise raise with its place. If the
        bytes are not UTF-8, `encoding` is what they seem to be."""
        if not self.wants(place):
            return
        if kind not in self.config.skip:
            raise DataError(f"{place}: {what}; {self._remedy(kind, place, encoding)}")
        self.counts[kind] += 1

    def _remedy(self, kind: InvalidInput, place: Place, encoding: str | None) -> str:
        whole_file = self.config.document == "file"
        skip = f"data.skip = {json.dumps([*self.config.skip, kind])} in the recipe"
        if not self.has_recipe:
            skip = setting("skip", [kind])
        what = "files" if whole_file else f"{place.unit}s"
        if encoding is None or (self.has_recipe and not whole_file):
            return f"fix it, or have such {what} skipped and counted: {skip}"
        converting = f"convert it to UTF-8: {conversion(place.path, encoding)}"
        if whole_file:
            return converting
        # Skipping would leave little or nothing of a text in another encoding.
        return f"if only a few {what} are, have them skipped and counted: {skip}; else {converting}"

    def clean(self, raw: bytes | str, place: Place) -> str | None:
        """Return the text of a line or field; None if it was rejected or is to be dropped."""
        text = self.decode(raw, place)
        if text is None:
            return None
        text = text.strip() if self.config.strip else text
        if not text.strip():
            self.reject("blank", place, "the line or a field is blank")
            return None
        if text in self.config.drop:
            self.counts[DROPPED] += 1
            return None
        return text

    def decode(self, raw: bytes | str, place: Place) -> str | None:
        """Decode the bytes as text; None if they were rejected."""
        encoding = None
        try:
            if isinstance(raw, bytes):
                return raw.decode("utf-8")
            raw.encode("utf-8")  # JSON can hold a lone surrogate
            return raw
        except UnicodeDecodeError as error:
            if _is_cut_off(error):
                what = "the last character is cut off, as if the file had not been copied whole"
            else:
                encoding = guess_encoding(_around(error))
                looks = "" if encoding is None else f" (it looks like {encoding})"
                byte = error.object[error.start]
                what = f"byte {error.start + 1} (0x{byte:02x}) is not UTF-8{looks}"
        except UnicodeEncodeError as error:
            what = f"character {error.start + 1} is a lone surrogate"
        self.reject("invalid-utf8", place, what, encoding)
        return None


def _is_cut_off(error: UnicodeDecodeError) -> bool:
    """Tell whether UTF-8 ends inside a character. Latin-1 may end in such a byte too, but has no
    valid characters of several bytes before it."""
    before = error.object[: error.start]
    return error.reason == "unexpected end of data" and not before.isascii()


def _around(error: UnicodeDecodeError) -> bytes:
    """Return the line with the first invalid byte, and some of the text after it."""
    begin = error.object.rfind(b"\n", 0, error.start) + 1
    return error.object[max(begin, error.start - 1000) : error.start + 5000]


def only_carriage_returns(path: Path) -> DataError:
    """Return the error for a file without a line feed, as old Mac programs wrote it. Such a file
    would be one line."""
    return DataError(
        f"{path}: its lines end in \\r alone, and must end in \\n or \\r\\n; convert it: "
        + rewriting(path, r"tr '\r' '\n'", "lf")
    )


def why_nothing(config: DataConfig, skipped: Mapping[str, int]) -> str:
    """Explain why no text is left: what was skipped, and what to do about the most frequent
    kind."""
    if not skipped and (config.held_out or config.held_out_test):
        return "the other splits take all lines; give more text, or make data.held_out smaller"
    if not skipped:
        return "the files are empty; name files with text"
    counts = ", ".join(f"{count:,} {kind}" for kind, count in skipped.items())
    match max(skipped, key=lambda kind: skipped[kind]):
        case "too-long":
            limit = f"data.max_bytes = {config.max_bytes}"
            if config.max_tokens is not None:
                limit += f" or data.max_tokens = {config.max_tokens}"
            remedy = f"break the lines up, or raise {limit}"
        case "blank":
            remedy = "name a file with text"
        case kind if kind == DROPPED:
            remedy = "leave something out of data.drop"
        case kind if kind in config.clean:
            remedy = f"fix the text, or leave {kind!r} out of data.clean"
        case kind:
            remedy = f"fix the text; to see the first such place, leave {kind!r} out of data.skip"
    return f"skipped: {counts}; {remedy}"
