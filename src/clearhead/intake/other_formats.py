"""Files of programs that translate, recognised by their content, or else by their names: a model
would learn their syntax. Each is named, with the commands that write its texts as a table."""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

from clearhead.errors import DataError

_COMMENTS = re.compile(rb"(?:[ \t]*#[^\n]*\n|\s)*")
_PO_ENTRY = re.compile(rb'(?:domain|msgctxt|msgid) *"')
_PO = ("po2csv", ".csv")


class Catalogue(NamedTuple):
    """What a file is, and how its pairs become a table."""

    what: str
    table: Path
    commands: str


def catalogue_of(path: Path, head: bytes) -> Catalogue | None:
    """What a file that begins with these bytes is, if it is a catalogue of translations."""
    head = head.removeprefix(b"\xef\xbb\xbf")
    comments = _COMMENTS.match(head)
    if comments and _PO_ENTRY.match(head, comments.end()):
        what, steps = "a gettext catalogue (PO)", [_PO]
    elif b"<xliff" in head.lower():
        what, steps = "XLIFF", [("xliff2po", ".po"), _PO]
    elif re.search(rb"<!doctype ts>|<ts\s", head.lower()):
        what, steps = "a catalogue of Qt Linguist", [("ts2po", ".po"), _PO]
    elif path.suffix.lower() == ".properties":  # keys and texts, which any text could look like
        what, steps = "a Java properties file", [("prop2po -t SOURCE.properties", ".po"), _PO]
    else:
        return None
    given, commands = path, list[str]()
    for program, ending in steps:
        made = path.with_suffix(f".pairs{ending}")
        commands.append(f"{program} {shlex.join([str(given), str(made)])}")
        given = made
    return Catalogue(what, given, " && ".join(["pip install translate-toolkit", *commands]))


def refuse_other_formats(path: Path, head: bytes) -> None:
    """Raises if a file that begins with these bytes is a catalogue of translations."""
    catalogue = catalogue_of(path, head)
    if catalogue is not None:
        raise DataError(
            f"{path} is {catalogue.what}, and a model would learn its syntax; write its pairs as a "
            f"table: {catalogue.commands}; then give OwnText.table({str(catalogue.table)!r}) with "
            "columns=['source', 'target']"
        )
