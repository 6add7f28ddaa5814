"""What somebody has, as settings of `[data]`: a table, or a file for each label."""

from pathlib import Path
from typing import Any, NamedTuple

from clearhead.config.checks import user_path
from clearhead.config.data import Task
from clearhead.errors import ClearheadError, DataError, InputError
from clearhead.intake.missing import no_such_file
from clearhead.intake.proposal import propose

TEMPLATES: dict[Task, str] = {
    "pairs": "my-pairs",
    "language-model": "my-text",
    "classification": "my-labels",
}


class OwnData(NamedTuple):
    """How a user's own files become a recipe: the template, and the values to change in it."""

    template: str
    """The recipe to start from, in recipes/templates."""
    values: dict[str, Any]
    """By dotted keys."""
    summary: str
    """What was taken, and how to change it."""


def own_table(path: Path, columns: tuple[str, ...] = ()) -> OwnData:
    """A table or a translation memory; its columns are proposed unless given."""
    place = _absolute(path)
    given = tuple(int(column) if column.isdecimal() else column for column in columns)
    found = propose(place, given)
    names = ", ".join(map(str, found.columns))
    others = [str(name) for name in found.others]
    summary = f"Table: {found.format}, columns {names}, for {found.task}"
    if found.labels:
        summary += f" (labels: {', '.join(found.labels)})"
    shown = (text if len(text) <= 40 else f"{text[:39]}…" for text in map(_valid, found.sample))
    summary += f". The first: {' | '.join(shown)}."
    if found.only_label is not None:
        column, label = found.only_label
        summary += (
            f" Not a classifier: column {column!r} has {label!r} in every row, and a classifier "
            "needs two labels or more; this is a language model of the texts."
        )
    if others:
        summary += f" Other columns: {', '.join(others)}; choose with columns=…."
    values: dict[str, Any] = {
        "data.train": (str(place),),
        "data.format": found.format,
        "data.columns": found.columns,
        "data.labels": found.labels,
        "data.document": "line",
    }
    return OwnData(TEMPLATES[found.task], values, summary)


def _valid(text: str) -> str:
    """Half a surrogate pair cannot be written down."""
    return text.encode("utf-8", "replace").decode("utf-8")


def own_labels(given: list[str]) -> OwnData:
    """Files of texts, written as LABEL=FILE, one for each label."""
    files: dict[str, Path] = {}
    for text in given:
        label, equals, file = text.partition("=")
        if not equals or not label.strip() or not file:
            raise InputError(f"label {text!r} is not LABEL=FILE; try good=good.txt")
        if label.strip() in files:
            raise InputError(f"label {label.strip()!r} is given twice; put its texts in one file")
        files[label.strip()] = _absolute(Path(file))
    if len(files) < 2:
        raise InputError(
            "a classifier needs two or more labels; give them, such as good=a.txt bad=b.txt"
        )
    twice = [path for path in files.values() if list(files.values()).count(path) > 1]
    if twice:
        raise DataError(f"{twice[0]} is given for two labels; a text has only one")
    values = {
        "data.train": tuple(map(str, files.values())),
        "data.labels": tuple(files),
    }
    return OwnData("my-labels", values, f"Labels: {', '.join(files)}.")


def check_name(path: Path) -> None:
    """Whether a recipe can name this file."""
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        raise ClearheadError(
            f"the name {str(path)!r} is not UTF-8, as a recipe must be; rename the file"
        ) from None


def _absolute(path: Path) -> Path:
    check_name(path)
    place = user_path(path).absolute()
    if not place.is_file():
        raise no_such_file(place)
    return place
