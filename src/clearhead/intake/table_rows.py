"""Reads the rows of a table, by the names of its columns or by their numbers."""

import csv
import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import chain, islice, zip_longest
from pathlib import Path
from statistics import mean
from typing import Any

from clearhead.config.data import Format
from clearhead.errors import DataError, own_text
from clearhead.intake.json_values import read_values
from clearhead.intake.parquet import open_parquet, records
from clearhead.intake.recognise import rewriting
from clearhead.intake.tables import (
    SEPARATOR_LINE,
    Columns,
    by_name,
    cells_up_to,
    label_text,
    read_units,
    separator_of,
)
from clearhead.intake.unpack import MAX_RECORD, OneRecord, OpenedFile, open_bytes, text_of

N_ROWS = 500
MOST_SPLIT = 0.2
"""The share of rows of CSV that may have another number of cells than most."""
_HEADER = re.compile(r"[^\W\d][\w .:()/-]{0,30}(?<!\.)")  # a sentence ends in a full stop
# Words that are a header even above cells as short as theirs.
_NAME = (
    "(source|target|src|tgt|trg|text|sentence|original|translation|label|class|id|"
    "english|german|french|spanish|russian|japanese|korean|chinese|en|de|fr|es|ru|ja|ko|zh|"
    "原文|译文|源文|目标|文本|句子|标签|类别|英文|中文|德文|法文|日文)"
)
_NAMES = re.compile(rf"{_NAME}([ _:(/-]+{_NAME}\)?)*", flags=re.IGNORECASE)
Row = dict[str | int, str]


def rows_of(file: OpenedFile, kind: Format, columns: Columns) -> Iterator[Row]:
    """Yield the rows of a file in this format. If a column is named, the first line is a header."""
    return _READERS[kind](file, columns)


def _cells(rows: Iterator[list[str]], columns: Columns) -> Iterator[Row]:
    """Yield the cells of each row by the names in the first row, if it looks like a header;
    otherwise by number, from 1."""
    first = next(rows, None)
    if first is None:
        return
    below = list(islice(rows, 20))
    stripped = [[cell.strip() for cell in row] for row in (first, *below)]
    header = _is_header(stripped[0], stripped[1:], columns)
    numbers = range(1, len(first) + 1)
    names: list[str | int] = [cell.strip() for cell in first] if header else [*numbers]
    some_fit = any(len(row) == len(first) for row in below)
    for row in chain(below if header else [first, *below], rows):
        if len(row) == len(first) or not some_fit:  # other rows are malformed
            yield dict(zip(names, row))


def _is_header(first: list[str], below: list[list[str]], columns: Columns) -> bool:
    if any(isinstance(column, str) and column in first for column in columns):
        return True
    names = [cell for cell in first if cell]
    # Spreadsheets add empty columns, and the first one may number the rows and have no name.
    below_first = islice(zip_longest(*below), 1, len(first))
    nameless = any(any(cells) and not name for name, cells in zip(first[1:], below_first))
    if nameless or not names or len(set(names)) < len(names) or not below:
        return False
    if all(map(_NAMES.fullmatch, names)):
        return True
    # Sentences can look like names, but a header is shorter than the cells below it.
    shorter = sum(map(len, first)) < mean(sum(map(len, row)) for row in below)
    return shorter and all(map(_HEADER.fullmatch, names))


def _lines(file: OpenedFile) -> Iterator[str]:
    record = OneRecord(file)
    text = text_of(record, "utf-8-sig", "replace")
    text.reconfigure(newline="\n")
    for line in text:
        record.begin()
        yield line


def _tsv(file: OpenedFile, columns: Columns) -> Iterator[Row]:
    lines = (line.rstrip("\r\n").split("\t") for line in _lines(file) if line.strip())
    return _cells(lines, columns)


def has_quoted_cells(path: Path) -> bool:
    """Tell whether a file with tabs was written as spreadsheets do it, with quotes around cells
    that contain quotes, tabs or line ends. Then every row has the same number of cells, which is
    not so without the quotes, or some cells have their own quotes doubled."""
    with ExitStack() as stack:
        lines = list(islice(_lines(open_bytes(path, stack)), N_ROWS))
    reader = csv.reader(lines, delimiter="\t", strict=True)
    rows: list[list[str]] = []
    try:
        rows.extend(reader)
    except csv.Error:
        # an error before the end of what was read: the quotes are just text
        if reader.line_num < len(lines):
            return False
        rows.append([])
    split = [line.rstrip("\r\n").split("\t") for line in lines if line.strip()]
    doubled = any(
        cell.startswith('"') and cell.endswith('"') and '""' in cell[1:-1]
        for cells in split
        for cell in cells
    )
    widths, without = ({len(cells) for cells in table if cells} for table in (rows[:-1], split))
    return len(widths) == 1 and max(widths) > 1 and (doubled or widths != without)


def refuse_split_texts(path: Path) -> None:
    """Raises if rows of CSV often have more or fewer cells than most: then commas inside the texts
    split them."""
    with ExitStack() as stack:
        file = open_bytes(path, stack)
        separator = separator_of(file)
        widths = [len(row) for row in islice(_csv_rows(file), N_ROWS) if row]
    ((usual, n_usual),) = Counter(widths).most_common(1)
    if len(widths) - n_usual <= MOST_SPLIT * len(widths):
        return
    row, width = next((row, width) for row, width in enumerate(widths, 1) if width != usual)
    raise DataError(
        f"{path}: row {row} has {width} cells and most others have {usual}, as if {separator!r} "
        "inside the texts divided them; save the table with quotes around each text, or with tabs "
        "between its columns (.tsv)"
    )


def _csv(file: OpenedFile, columns: Columns) -> Iterator[Row]:
    return _cells((row for row in _csv_rows(file) if row), columns)


def _csv_rows(file: OpenedFile) -> Iterator[list[str]]:
    separator, record = separator_of(file), OneRecord(file)
    try:
        with cells_up_to(MAX_RECORD):
            for row in csv.reader(text_of(record, "utf-8-sig", "replace"), delimiter=separator):
                record.begin()
                if row != SEPARATOR_LINE:
                    yield row
    except csv.Error as error:
        raise DataError(f"{file.path} is not CSV ({error}); check its quotes") from None


def _jsonl(file: OpenedFile, _: Columns) -> Iterator[Row]:
    for line in _lines(file):
        try:
            yield from _row_of(json.loads(line))
        except (ValueError, RecursionError):
            continue  # prepare names the encoding


def _json(file: OpenedFile, _: Columns) -> Iterator[Row]:
    values = read_values(file)
    first = list(islice(values, 2))
    if len(first) == 1 and isinstance(first[0], dict):
        _refuse_one_object(file.path, first[0])
    for value in chain(first, values):
        yield from _row_of(value)


def _row_of(value: Any) -> Iterator[Row]:
    if isinstance(value, dict):
        yield dict(_flat(value))
    elif isinstance(record := by_name(value), dict):
        row: Row = {int(number): text for number, text in _flat(record) if str(number).isdecimal()}
        if row:
            yield row


def _refuse_one_object(path: Path, value: dict[str, Any]) -> None:
    """Raises if all records are inside one object: by their names, by columns as pandas writes
    them, or in a list beside a version and the like."""
    inner = list(value.values())
    if len(inner) > 1 and all(isinstance(record, dict) and record for record in inner):
        if all(name.isdecimal() for record in inner for name in record):
            raise DataError(
                f"{path} is one object with a table by columns, as pandas writes it; write it by "
                'rows: to_json(…, orient="records")'
            )
        if inner[0].keys() == inner[1].keys():
            made = rewriting(path, "jq '[.[]]'", "records", ".json")
            raise DataError(f"{path} is one object, with a record under each name; run: {made}")
    if _has_only_texts(value) and _n_texts(value) > 2:
        raise DataError(
            f"{path} is one object with a text under each key, as programs keep their "
            "translations (i18n JSON), not a table of rows; join it with the file of the other "
            "language (OTHER.json): jq -rs "
            "'.[1] as $other | .[0] | paths(strings) as $key | [getpath($key), ($other | "
            'getpath($key))] | select(all(.[]; type == "string")) | @tsv\' '
            f"{shlex.quote(str(path))} OTHER.json > pairs.tsv; then give "
            f"{own_text('table', 'pairs.tsv')}"
        )
    lists = [name for name, inner in value.items() if isinstance(inner, list)]
    if lists:
        made = rewriting(
            path, f"jq {shlex.quote(f'.[{json.dumps(lists[0])}]')}", "records", ".json"
        )
        raise DataError(
            f"{path} is one object, with lists inside it ({', '.join(map(repr, lists[:9]))}); "
            f"write the list that has the texts to its own file: {made}"
        )


def refuse_messages(path: Path, kind: Format) -> None:
    """Raises if each record holds the messages of a conversation, as OpenAI's and others' files for
    fine-tuning do: a list of objects cannot be a column."""
    with ExitStack() as stack:
        file = open_bytes(path, stack)
        try:
            first = next(read_values(file)) if kind == "json" else json.loads(next(_lines(file)))
        except (StopIteration, ValueError, RecursionError, DataError):
            return  # whoever reads the rows says what is wrong
    for name, messages in first.items() if isinstance(first, dict) else ():
        one = messages[0] if isinstance(messages, list) and messages else None
        if not isinstance(one, dict):
            continue
        content = next((key for key in ("content", "value") if key in one), "")
        if content and not isinstance(one[content], list | dict):
            each = ".[]" if kind == "json" else "."
            each += f"[{json.dumps(name)}][].{content} | strings"
            made = rewriting(path, f"jq -r {shlex.quote(each)}", "messages", ".txt")
            raise DataError(
                f"{path}: the field {name!r} holds the messages of a conversation, a list that "
                f"cannot be a column; write them as text, one below the other: {made}"
            )


def _has_only_texts(value: dict[str, Any]) -> bool:
    return all(
        _has_only_texts(inner) if isinstance(inner, dict) else isinstance(inner, str)
        for inner in value.values()
    )


def _n_texts(value: dict[str, Any]) -> int:
    return sum(_n_texts(inner) if isinstance(inner, dict) else 1 for inner in value.values())


def _flat(record: dict[str, Any], before: str = "") -> Iterator[tuple[str | int, str]]:
    for name, value in record.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        elif (text := label_text(value)) is not None:
            yield f"{before}{name}", text


def _parquet(file: OpenedFile, _: Columns) -> Iterator[Row]:
    table = open_parquet(file)
    names = list(table.texts())
    if not names and table.n_rows:
        yield {}
    for batch in table.batches(names) if names else ():
        yield from (dict(_flat(record)) for record in records(batch) if record is not None)


def _tmx(file: OpenedFile, _: Columns) -> Iterator[Row]:
    for unit in read_units(file):
        yield {**unit}


_READERS: dict[Format, Callable[[OpenedFile, Columns], Iterator[Row]]] = {
    "tsv": _tsv,
    "csv": _csv,
    "json": _json,
    "jsonl": _jsonl,
    "parquet": _parquet,
    "tmx": _tmx,
}
