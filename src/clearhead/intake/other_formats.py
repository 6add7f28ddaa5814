"""Recognises files of translation programs by their content, or else by their names. Read as plain
text or as lines, they would teach a model their syntax. The message names each format, and what
reads it."""

import shlex
from pathlib import Path
from typing import NamedTuple

from clearhead.errors import DataError, own_text
from clearhead.localise.catalogues import ENDINGS, kind_of_catalogue


class OtherFormat(NamedTuple):
    """The format of a file, and the catalogue to give instead of it."""

    what: str
    catalogue: Path
    """The catalogue, under a name that says what it is."""
    command: str
    """The command that makes it; empty if the file is one already."""


def catalogue_of(path: Path, head: bytes) -> OtherFormat | None:
    """Return the format of a file that begins with these bytes, if it is a catalogue of
    translations."""
    match kind_of_catalogue(head):
        case "po":
            what, ending, programs = "a gettext catalogue (PO)", ".po", ["mv"]
        case "xliff":
            what, ending, programs = "XLIFF", ".xlf", ["mv"]
        case "qt":
            install = "pip install translate-toolkit &&"
            what, ending, programs = "a catalogue of Qt Linguist", ".po", [install, "ts2po"]
        case None if path.suffix.lower() in (".po", ".pot") and head.lstrip().startswith(b"#"):
            what, ending, programs = "a gettext catalogue (PO)", ".po", ["mv"]  # long comments
        case None if path.suffix.lower() == ".properties":  # any text could look like one
            install = "pip install translate-toolkit &&"
            programs = [install, "prop2po -t SOURCE.properties"]
            what, ending = "a Java properties file", ".po"
        case None:
            return None
    if programs == ["mv"] and path.suffix.lower() in ENDINGS:
        return OtherFormat(what, path, "")
    made = path.with_suffix(ending)
    return OtherFormat(what, made, " ".join([*programs, shlex.join([str(path), str(made)])]))


def refuse_other_formats(path: Path, head: bytes) -> None:
    """Raises if a file that begins with these bytes is a catalogue of translations."""
    other = catalogue_of(path, head)
    if other is not None and path.suffix.lower() == ".pot":
        raise DataError(
            f"{path} is a template (POT), which has no translations to learn from; give the "
            "translated catalogues, such as fr.po"
        )
    if other is not None:
        first = f"{other.command}, then " if other.command else ""
        raise DataError(
            f"{path} is {other.what}, and a model would learn its syntax; {first}give it as a "
            f"table: {own_text('table', str(other.catalogue))}"
        )
