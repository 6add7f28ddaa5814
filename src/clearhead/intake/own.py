"""Turns a user's own files into settings of `[data]`: a table, or a file for each label."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from clearhead.config.checks import as_path
from clearhead.config.data import Task
from clearhead.errors import ClearheadError, DataError, InputError, Message, setting
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
    """The values by dotted keys."""
    summary: str
    """What was taken, and how to change it."""


def own_table(path: Path, columns: tuple[str, ...] = ()) -> OwnData:
    """Read a table or a translation memory. Its columns are proposed unless they are given."""
    file = _absolute(path)
    chosen = tuple(int(column) if column.isdecimal() else column for column in columns)
    proposal = propose(file, chosen)
    names = ", ".join(map(str, proposal.columns))
    others = [str(name) for name in proposal.others]
    summary = f"Table: {proposal.format}, columns {names}, for {proposal.task}"
    if proposal.labels:
        summary += f" (labels: {', '.join(proposal.labels)})"
    sample = map(_without_surrogates, proposal.sample)
    shown = (text if len(text) <= 40 else f"{text[:39]}…" for text in sample)
    summary += f". The first: {' | '.join(shown)}."
    if proposal.only_label is not None:
        column, label = proposal.only_label
        summary += (
            f" Not a classifier: column {column!r} has {label!r} in every row, and a classifier "
            "needs two labels or more; this is a language model of the texts."
        )
    if others:
        summary += f" Other columns: {', '.join(others)}; choose with {setting('columns', ...)}."
    values: dict[str, Any] = {
        "data.train": (str(file),),
        "data.format": proposal.format,
        "data.columns": proposal.columns,
        "data.labels": proposal.labels,
        "data.document": "line",
    }
    return OwnData(TEMPLATES[proposal.task], values, Message(summary))


def _without_surrogates(text: str) -> str:
    """Return a text that can be written: a lone surrogate, which cannot, becomes a question
    mark."""
    return text.encode("utf-8", "replace").decode("utf-8")


def labels_as_written(labelled_files: Iterable[str]) -> dict[str, str]:
    """Read the files of LABEL=FILE, as the command line takes them."""
    files: dict[str, str] = {}
    for text in labelled_files:
        label, equals, file = text.partition("=")
        if not equals or not label.strip() or not file:
            raise InputError(f"label {text!r} is not LABEL=FILE; try good=good.txt")
        if label.strip() in files:
            raise InputError(f"label {label.strip()!r} is given twice; put its texts in one file")
        files[label.strip()] = file
    return files


def own_labels(labelled_files: Mapping[str, str | Path]) -> OwnData:
    """Read files of texts, one for each label."""
    files: dict[str, Path] = {}
    for label, file in labelled_files.items():
        if not isinstance(label, str) or not label.strip():
            raise InputError(f"label {label!r} is not a name; give {{'good': 'good.txt', …}}")
        files[label.strip()] = _absolute(as_path(f"the file of {label!r}", file))
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
    """Raises if a recipe cannot name this file."""
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        raise ClearheadError(
            f"the name {str(path)!r} is not UTF-8, as a recipe must be; rename the file"
        ) from None


def _absolute(path: Path) -> Path:
    check_name(path)
    absolute = path.absolute()
    if not absolute.is_file():
        raise no_such_file(absolute)
    return absolute
