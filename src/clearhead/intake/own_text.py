"""Turns a user's own text, in files or in memory, into the data of a recipe."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Never

from clearhead.config.checks import as_path
from clearhead.config.data import DataConfig
from clearhead.errors import ClearheadError, ConfigError, DataError, InputError, setting, type_of
from clearhead.files import NewFile
from clearhead.intake.own import OwnData, check_name, own_labels, own_table
from clearhead.intake.proposal import LABELS_AT_MOST
from clearhead.intake.recognise import HEAD, check_head
from clearhead.localise.catalogues import ENDINGS, check_can_localise, read_all_pairs
from clearhead.text.tokenizer import check_is_text

N_PLACEHOLDERS = 32
"""The highest number of spans in all but a few texts of programs."""
FEW = 20
"""If there are fewer texts than this, each is a file whose end is held out; otherwise, lines are
held out at random."""


class _Rows:
    """Rows that are made from what the user gave each time they are read."""

    def __init__(
        self, what: str, given: Any, make: Callable[[Any], Iterator[dict[str, str]]]
    ) -> None:
        self.what, self.given, self.make = what, given, make
        self.was_read = False

    def __iter__(self) -> Iterator[dict[str, str]]:
        if self.was_read and isinstance(self.given, Iterator):
            raise self._used_up()
        self.was_read = True
        return self._read()

    def _read(self) -> Iterator[dict[str, str]]:
        is_empty = True
        for row in self.make(self.given):
            is_empty = False
            yield row
        if is_empty and isinstance(self.given, Iterator):
            raise self._used_up()

    def _used_up(self) -> InputError:
        return InputError(
            f"{self.what}: the generator was already used; give a list, which can be read again"
        )


@dataclass(frozen=True, kw_only=True)
class OwnText:
    """Your own text. Each constructor says what kind of text it is."""

    template: str
    """The recipe that it starts from."""
    what: str = ""
    """The name of the text in messages."""
    rows: Iterable[dict[str, str]] | None = None
    """Text in memory."""
    counts: Counter[str] | None = None
    """The number of texts of each label, once the rows have been read."""
    paths: tuple[Path, ...] = ()
    own: OwnData | None = None
    placeholders: int = 0
    """The number of reserved tokens for what translations must keep (`data.placeholders`)."""

    @classmethod
    def pairs(cls, rows: Iterable[Any], *more: Never) -> "OwnText":
        """Make text for a translator: (source, target) strings from a list, a generator, or a data
        frame of two columns."""
        if more:
            raise InputError(
                "OwnText.pairs takes one list of pairs; for two columns: "
                "OwnText.columns(sources, targets)"
            )
        _check_many("pairs", rows)
        return cls(template="my-pairs", what="pairs", rows=_Rows("pairs", rows, _pairs))

    @classmethod
    def columns(cls, source: Sequence[str], target: Sequence[str]) -> "OwnText":
        """Make text for a translator from sources and the targets that belong to them."""
        for side, column in (("source", source), ("target", target)):
            _check_column(side, column)
        n, m = len(source), len(target)
        if n != m:
            raise DataError(f"there are {n} sources and {m} targets; give one target for each")
        rows = _Rows("pairs", (source, target), lambda columns: _pairs(zip(*columns)))
        return cls(template="my-pairs", what="pairs", rows=rows)

    @classmethod
    def parallel_files(cls, source: str | Path, target: str | Path) -> "OwnText":
        """Make text for a translator from two files whose lines belong together."""
        paths = as_path("source", source), as_path("target", target)
        return cls(template="my-pairs", paths=paths)

    @classmethod
    def texts(cls, texts: Iterable[str]) -> "OwnText":
        """Make text for a language model: strings from a list, a generator or a column of a data
        frame."""
        _check_many("texts", texts)
        return cls(template="my-text", what="texts", rows=_Rows("texts", texts, _strings))

    @classmethod
    def files(cls, *paths: str | Path) -> "OwnText":
        """Make text for a language model from files, or from folders of files."""
        if not paths:
            raise InputError("paths= is missing; give the files of the text")
        return cls(template="my-text", paths=tuple(as_path("paths", path) for path in paths))

    @classmethod
    def catalogues(cls, *paths: str | Path) -> "OwnText":
        """Make text for a translator that keeps placeholders and tags, from the entries of PO or
        XLIFF files that people have translated."""
        if not paths:
            raise InputError("paths= is missing; give the catalogues")
        files = [as_path("paths", path) for path in paths]
        check_can_localise()
        rows = _Rows("pairs", files, _translated)
        return cls(template="my-pairs", what="pairs", rows=rows, placeholders=N_PLACEHOLDERS)

    @classmethod
    def table(cls, path: str | Path, columns: Sequence[str | int] = ()) -> "OwnText":
        """Read a TSV, CSV, JSON lines, Parquet or TMX file, or a PO or XLIFF file. Without
        `columns`, columns are proposed."""
        check_strings("columns", columns)
        if as_path("table", path).suffix.lower() in ENDINGS:
            return cls.catalogues(path)
        own = own_table(as_path("table", path), tuple(map(str, columns)))
        return cls(template=own.template, own=own)

    @classmethod
    def labelled(cls, rows: Iterable[Any]) -> "OwnText":
        """Make text for a classifier: (text, label) strings from a list, a generator, or a data
        frame of two columns."""
        _check_many("rows", rows)
        counts: Counter[str] = Counter()
        made = _Rows("labelled", rows, partial(_labelled, counts=counts))
        return cls(template="my-labels", what="labelled", rows=made, counts=counts)

    @classmethod
    def labels(cls, files: Mapping[str, str | Path]) -> "OwnText":
        """Make text for a classifier from a file of texts for each label."""
        if not isinstance(files, Mapping):
            raise InputError(f"files={files!r:.60} is not a dictionary; give {{label: file, …}}")
        own = own_labels(files)
        return cls(template=own.template, own=own)


def without_labels(text: OwnText) -> OwnText:
    """Return the same texts for a masked language model."""
    if text.template == "my-pairs":
        rule = "learns from texts, but these are pairs"
        raise ConfigError("masked", True, rule, "give the texts of one side, or leave it out")
    own = text.own
    if own is not None and own.values.get("data.labels"):
        values = own.values | {"data.labels": ()}
        if "data.columns" in values:
            values["data.columns"] = values["data.columns"][:1]
        else:
            values["data.format"] = "text"  # a file for each label
        own = own._replace(values=values, summary=f"{own.summary} The labels are left out.")
    return replace(text, template="my-masked", own=own, counts=None)


def data_settings(text: OwnText, folder: Path, sides: tuple[str, ...]) -> dict[str, Any]:
    """Return the settings of `[data]` for files, or for text in memory, which is written to
    `folder`."""
    if text.rows is None:
        for path in text.paths:
            check_name(path)
        return {"train": tuple(str(path.absolute()) for path in text.paths)}
    rows, what = iter(text.rows), text.what
    first = list(islice(rows, FEW))
    plain = [row for row in first if [*row] == ["text"] and row["text"].strip()]
    if plain and len(first) < FEW and all(_is_plain(row["text"]) for row in plain):
        files = [_write_text(iter([row]), folder, what, plain=True)[0] for row in plain]
        return {"train": tuple(dict.fromkeys(map(str, files)))}
    file, longest = _write_text(chain(first, rows), folder, what)
    table = {"train": (str(file),), "format": "jsonl", "columns": sides, "document": "line"}
    if text.placeholders:
        table["placeholders"] = text.placeholders
    if text.counts is not None:
        table["labels"] = _check_labels(text.counts)
    return table | {"max_bytes": max(DataConfig.max_bytes, longest)}


def _check_labels(counts: Counter[str]) -> tuple[str, ...]:
    labels = tuple(label for label, _ in sorted(counts.items(), key=lambda each: (-each[1], each)))
    if not 1 < len(labels) <= LABELS_AT_MOST:
        raise DataError(
            f"there are {len(labels)} different labels; a classifier needs 2 to {LABELS_AT_MOST}, "
            "so check that the label is the second of each pair"
        )
    return labels


def _is_plain(text: str) -> bool:
    """Tell whether a file with this text would be taken for text, and not, for example, for
    HTML."""
    try:
        check_head(Path("text.txt"), text[:HEAD].encode(errors="replace"))
    except DataError:
        return False
    return True


def check_strings(what: str, value: Any) -> None:
    """Raises unless the value is a list of strings."""
    if isinstance(value, str):
        raise InputError(f"{what}={value!r} is one string; give a list, such as {what}=[{value!r}]")
    kinds = str | int if what == "columns" else str  # a column may have a number
    if not isinstance(value, Sequence) or not all(isinstance(item, kinds) for item in value):
        raise InputError(f"{what}={value!r:.60} must be a list of strings; give one")


def _check_many(what: str, value: Any) -> None:
    if isinstance(value, str):
        remedy = "write [(text, label), …], or OwnText.table(path)"
        if what == "texts":
            remedy = "write [text], or OwnText.files(path)"
        elif what == "pairs":
            remedy = "write [(source, target), …], or OwnText.parallel_files(source, target)"
        raise InputError(f"{what} is one string; {remedy}")
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        raise InputError(
            f"{what}={value!r:.60} is {type_of(value)}; give a list, a generator or a data "
            "frame of strings; for files, OwnText.parallel_files or OwnText.files"
        )


def _check_column(side: str, value: Any) -> None:
    if isinstance(value, str | Path):
        raise InputError(
            f"{side}={str(value)!r:.60} is one string; give a list; for files, "
            "OwnText.parallel_files(…)"
        )
    if isinstance(value, Mapping | Set) or not hasattr(value, "__len__"):
        raise InputError(
            f"{side}={value!r:.60} is {type_of(value)}; give a list, or a column of a data "
            "frame; for pairs from a generator, OwnText.pairs(…)"
        )


def _labelled(rows: Any, counts: Counter[str]) -> Iterator[dict[str, str]]:
    counts.clear()  # an earlier reading counted the same rows
    for number, row in enumerate(_items(rows), 1):
        fields = () if isinstance(row, str | Mapping) or not isinstance(row, Iterable) else [*row]
        if len(fields) != 2 or not all(isinstance(field, str) for field in fields):
            raise DataError(
                f"row {number} is {row!r:.60}; a row is (text, label), two strings (a label that "
                "is a number: str(label))"
            )
        text, label = fields[0], fields[1].strip()
        counts[label] += 1
        yield {"text": text, "label": label}


def _translated(files: list[Path]) -> Iterator[dict[str, str]]:
    return (pair._asdict() for pair in read_all_pairs(files))


def _pairs(table: Any) -> Iterator[dict[str, str]]:
    for number, row in enumerate(_items(table), 1):
        texts = () if isinstance(row, str | Mapping) or not isinstance(row, Iterable) else [*row]
        if len(texts) != 2 or not all(isinstance(text, str) for text in texts):
            raise DataError(
                f"pair {number} is {row!r:.60}; a pair is (source, target), two strings"
            )
        yield {"source": texts[0], "target": texts[1]}


def _items(table: Any) -> Iterable[Any]:
    """Return the items of a list or generator. For a data frame, return its rows, not the names of
    its columns."""
    if hasattr(table, "itertuples"):  # pandas
        return table.itertuples(index=False, name=None)
    return table.iter_rows() if hasattr(table, "iter_rows") else table  # polars


def _strings(texts: Any) -> Iterator[dict[str, str]]:
    for number, text in enumerate(_items(texts), 1):
        if not isinstance(text, str):
            raise DataError(
                f"text {number} is {text!r:.60}, {type_of(text)}; give strings "
                "(one column of a data frame: texts=frame['text'])"
            )
        yield {"text": text}


def _write_text(
    rows: Iterator[dict[str, str]], folder: Path, what: str, *, plain: bool = False
) -> tuple[Path, int]:
    """Write one line of JSON for each text, or the plain text. Returns the size of the longest in
    bytes. The name of the file depends on its content, so that other text never passes for text
    that has been prepared."""
    digest, n_rows, longest, end = hashlib.sha256(), 0, 0, "txt" if plain else "jsonl"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with NewFile(folder / f"{what}.{end}") as out:
            for row in rows:
                n_rows += 1
                for text in row.values():
                    check_is_text(text)
                shown = row["text"] if plain else json.dumps(row, ensure_ascii=False) + "\n"
                line = shown.encode()
                longest = max(longest, len(line))
                digest.update(line)
                out.write(line)
            if not n_rows:
                raise DataError(f"{what} is empty; give at least a few hundred texts")
            out.path = folder / f"{what}-{digest.hexdigest()[:12]}.{end}"
    except OSError as error:
        raise ClearheadError(
            f"{folder} cannot be written ({error.strerror}); name another folder: "
            f"{setting('folder')}"
        ) from None
    return out.path.absolute(), longest
