"""Files of programs that translate, recognised by their content, or else by their names: a model
would learn their syntax. Each is named, with the commands that write its texts as a table."""

import shlex
from pathlib import Path
from typing import NamedTuple

from clearhead.errors import DataError
from clearhead.localise.catalogues import kind_of_catalogue

_PO = ("po2csv", ".csv")


class OtherFormat(NamedTuple):
    """What a file is, and how its pairs become a table."""

    what: str
    table: Path
    commands: str


def catalogue_of(path: Path, head: bytes) -> OtherFormat | None:
    """What a file that begins with these bytes is, if it is a catalogue of translations."""
    match kind_of_catalogue(head):
        case "po":
            what, steps = "a gettext catalogue (PO)", [_PO]
        case "xliff":
            what, steps = "XLIFF", [("xliff2po", ".po"), _PO]
        case "qt":
            what, steps = "a catalogue of Qt Linguist", [("ts2po", ".po"), _PO]
        case None if path.suffix.lower() == ".properties":  # any text could look like one
            what, steps = "a Java properties file", [("prop2po -t SOURCE.properties", ".po"), _PO]
        case None:
            return None
    given, commands = path, list[str]()
    for program, ending in steps:
        made = path.with_suffix(f".pairs{ending}")
        commands.append(f"{program} {shlex.join([str(given), str(made)])}")
        given = made
    return OtherFormat(what, given, " && ".join(["pip install translate-toolkit", *commands]))


def refuse_other_formats(path: Path, head: bytes) -> None:
    """Raises if a file that begins with these bytes is a catalogue of translations."""
    catalogue = catalogue_of(path, head)
    if catalogue is not None:
        raise DataError(
            f"{path} is {catalogue.what}, and a model would learn its syntax; write its pairs as a "
            f"table: {catalogue.commands}; then give OwnText.table({str(catalogue.table)!r}) with "
            "columns=['source', 'target']"
        )
