"""Reads tables: TSV, CSV, JSON, Parquet and TMX. Each reader is a generator of records. A record
has its fields in the order of the columns, and its number, from 1."""

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, NamedTuple

from clearhead.config.data import DataConfig
from clearhead.errors import DataError, type_of
from clearhead.intake.invalid_input import Place, Sieve
from clearhead.intake.json_values import read_values
from clearhead.intake.parquet import open_parquet, records
from clearhead.intake.recognise import HEAD
from clearhead.intake.unpack import OneRecord, OpenedFile, naming, need, text_of

Columns = Sequence[int | str]
SEPARATORS = (",", ";", "\t", "|")
SEPARATOR_LINE = ["sep=", ""]
"""The line `sep=;` as a row: Excel's first line, which names the separator of the columns."""
TMX_CODES = ("bpt", "ept", "it", "ph", "ut")
MAX_TAG = 1 << 20
"""Bytes of one tag with its attributes, or of a comment."""
TMX_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"


class Raw(NamedTuple):
    """The fields of a record as they were read, with their places."""

    fields: list[bytes | str]
    place: Place
    places: tuple[Place, ...] = ()
    """Where each field is, if they are not all in one file."""


class TabSeparated:
    """Lines with as many columns as the first line. Columns that are named are found in the first
    line, which is then a header."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.indices: list[int] = []
        self.expected = 0

    def __call__(self, line: bytes) -> list[bytes | str] | None:
        cells = line.split(b"\t")
        if not self.expected:
            names = [cell.decode("utf-8", "replace").strip() for cell in cells]
            self.indices = column_indices(self.columns, names)
            self.expected = max(len(cells), *(column + 1 for column in self.indices))
            if has_header(self.columns):
                return None
        if len(cells) != self.expected:
            what = f"the line has {len(cells)} column(s), but {self.expected} are expected"
            if b'"' in line:
                what += " (if cells are in quotes, it is CSV: let its name end in .csv)"
            raise ValueError(what)
        return [cells[column] for column in self.indices]


def has_header(columns: Columns) -> bool:
    """Tell whether columns are named, so that the first line is a header."""
    return any(isinstance(column, str) for column in columns)


def column_indices(columns: Columns, names: Sequence[str]) -> list[int]:
    """Return the index of each column in the first line."""
    indices: list[int] = []
    for column in columns:
        if isinstance(column, str) and column not in names:
            raise DataError(
                f"data.columns: there is no column {column!r} in the first line, which has "
                f"{', '.join(map(repr, names))}; name one of these, or count from 1"
            )
        indices.append(names.index(column) if isinstance(column, str) else column - 1)
    return indices


def read_csv(file: OpenedFile, sieve: Sieve) -> Iterator[Raw]:
    """Read CSV. Quoted fields may contain commas and line ends. Rows are numbered without the
    header; a row that is rejected has no fields."""
    columns, indices, expected, row = sieve.config.columns, list[int](), 0, 0
    for line, cells in _csv_rows(file, sieve.config.max_bytes):
        place = Place(file.path, row + 1, line)
        fields: list[bytes | str] = []
        if isinstance(cells, str):
            sieve.reject("malformed", place, cells)
        elif not any(map(str.strip, cells)):
            sieve.reject("blank", place, "the line is blank")
        else:
            if not expected:
                names = [name.strip() if isinstance(name, str) else name for name in columns]
                indices = column_indices(names, [*map(str.strip, cells)])
                expected = max(len(cells), *(column + 1 for column in indices))
                if has_header(columns):
                    continue
            if len(cells) == expected:
                # Bytes that are not UTF-8 become bytes again, and are reported as such.
                fields = [cells[k].encode("utf-8", "surrogateescape") for k in indices]
            else:
                what = f"the line has {len(cells)} column(s), but {expected} are expected"
                if len(cells) > expected:
                    what += ' (put a text that contains a separator in quotes: "so, it is")'
                sieve.reject("malformed", place, what)
        row += 1
        yield Raw(fields, place)


def _csv_rows(file: OpenedFile, max_cell: int) -> Iterator[tuple[int, list[str] | str]]:
    """Yield the line in which each row begins, and the row's cells, or what is wrong with the
    row."""
    separator, record = separator_of(file), OneRecord(file)
    text = text_of(record, "utf-8-sig", "surrogateescape")
    rows = csv.reader(text, delimiter=separator, strict=True)
    with cells_up_to(max_cell):
        while True:
            record.begin()
            line = rows.line_num + 1
            try:
                cells = next(rows)
                if line > 1 or cells != SEPARATOR_LINE:
                    yield line, cells
            except StopIteration:
                return
            except csv.Error as error:
                if rows.line_num > line:  # skipped as one row, it would take valid rows along
                    raise DataError(
                        f"{file.path}, line {line}: the row that begins here, up to line "
                        f"{rows.line_num}, is not CSV ({error}); look for a quote that is not "
                        f"closed, or a text of more than {max_cell:,} characters (data.max_bytes)"
                    ) from None
                yield line, f"not CSV ({error})"


@contextmanager
def cells_up_to(characters: int) -> Iterator[None]:
    """Let csv read cells of this length inside the block; its own limit is 128 kB."""
    before = csv.field_size_limit(characters)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def separator_of(file: OpenedFile) -> str:
    """Return the separator of a CSV file's columns: commas, or semicolons, which spreadsheets write
    in countries with a decimal comma, or tabs, or bars. It is the one that gives most rows at the
    beginning of the file the same number of columns. Nothing is consumed from the file."""
    with naming(file.path):
        head = file.data.peek(HEAD)[:HEAD]  # pyright: ignore[reportAttributeAccessIssue]
    text = head.decode("utf-8-sig", "replace")
    if text[:4] == SEPARATOR_LINE[0] and text[5:6] in ("\r", "\n"):
        return text[4]
    best, most = SEPARATORS[0], 0.0
    for separator in SEPARATORS:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
        try:
            rows = [row for row in reader if row]
        except csv.Error:  # such as a field beyond the limit
            continue
        widths = Counter(map(len, rows[:-1] or rows))  # the last row may be cut off
        width, n = widths.most_common(1)[0] if widths else (1, 0)
        share = n / max(1, widths.total())
        if width > 1 and share > most:
            best, most = separator, share
    return best


def json_fields(config: DataConfig) -> Callable[[bytes], list[bytes | str]]:
    """Return a function that takes the wanted fields out of a line of JSON."""

    def fields_of(line: bytes) -> list[bytes | str]:
        text = line.decode("utf-8")
        try:
            record = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(
                f"the line is not JSON ({error.msg}, character {error.pos + 1})"
            ) from None
        except RecursionError:
            raise ValueError("the JSON is nested too deeply") from None
        return wanted_fields(record, config)

    return fields_of


def wanted_fields(record: Any, config: DataConfig) -> list[bytes | str]:
    """Return the text of each column. A label may be a number."""
    labels = (len(config.columns) - 1,) if config.task == "classification" else ()
    record = by_name(record)
    return [
        field_of(record, str(column), is_label=number in labels)
        for number, column in enumerate(config.columns)
    ]


def by_name(record: Any) -> Any:
    """Return an object unchanged, the values of a list by their numbers from 1, and a single text
    as number 1."""
    values = [record] if isinstance(record, str) else record
    if not isinstance(values, list):
        return record
    return {str(number): value for number, value in enumerate(values, 1)}


def label_text(value: Any) -> str | None:
    """Return a label as text: 1 is "1", true is "true"; None if the value cannot be a label."""
    if isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, bool | int | float) else None


def field_of(record: Any, column: str, *, is_label: bool = False) -> str:
    """Return a column's text. `translation.en` is the field "en" of the object "translation",
    unless there is a field of exactly that name."""
    if not isinstance(record, dict):
        raise ValueError(f"a JSON object is expected, but this is {type_of(record)}")
    if column not in record and "." in column:
        outer, inner = column.split(".", 1)
        if isinstance(record.get(outer), dict):
            return field_of(record[outer], inner, is_label=is_label)
    if column not in record:
        fields = ", ".join(map(repr, record))
        raise ValueError(f"there is no field {column!r} (the fields are {fields})")
    value = record[column]
    text = label_text(value) if is_label else value
    if not isinstance(text, str):
        shown = json.dumps(value, ensure_ascii=False, default=str)
        what = "a label" if is_label else "text"
        raise ValueError(f"field {column!r} is {shown:.60}, not {what}")
    return text


def read_json_values(file: OpenedFile, sieve: Sieve) -> Iterator[Raw]:
    """Read the objects of a JSON file, however its lines are broken."""
    for number, value in enumerate(read_values(file), 1):
        place = Place(file.path, number, unit="record")
        try:
            fields = wanted_fields(value, sieve.config)
            yield Raw([_as_read(field) for field in fields], place)
        except ValueError as error:
            sieve.reject("malformed", place, str(error))


def _as_read(field: bytes | str) -> bytes | str:
    """Turn what is not UTF-8 into bytes again, to report it as such. A lone surrogate that JSON
    spells out stays as it is."""
    try:
        return field.encode("utf-8", "surrogateescape") if isinstance(field, str) else field
    except UnicodeEncodeError:
        return field


def read_parquet(file: OpenedFile, sieve: Sieve) -> Iterator[Raw]:
    """Read the rows of a Parquet file, one batch at a time."""
    names = [str(column) for column in sieve.config.columns]
    row = 0
    for batch in open_parquet(file).batches(names):
        for record in records(batch):
            row += 1
            place = Place(file.path, row, unit="row")
            if record is None:
                sieve.reject("invalid-utf8", place, "the text is not UTF-8")
                continue
            try:
                yield Raw(wanted_fields(record, sieve.config), place)
            except ValueError as error:
                sieve.reject("malformed", place, str(error))


class _Markup(OneRecord):
    """The bytes of an XML file for a parser that reads an unfinished tag (or comment) from its
    start again with each piece, as expat did before 2.6. Without a limit, this would take quadratic
    time."""

    def __init__(self, file: OpenedFile, parser: Any) -> None:
        super().__init__(file)
        self.parser = parser.parser
        self.given = 0

    def readinto(self, buffer: memoryview) -> int:
        """Read the next bytes, unless a tag already has too many."""
        if self.given - self.parser.CurrentByteIndex > MAX_TAG:
            raise DataError(
                f"{self.file.path} has a tag or a comment of more than {MAX_TAG:,} bytes; is it "
                "damaged?"
            )
        n = super().readinto(buffer)
        self.given += n
        return n


def read_units(file: OpenedFile) -> Iterator[dict[str, str]]:
    """Read the units of a translation memory (TMX), one at a time: the texts by language, in lower
    case. No entity is resolved and nothing is fetched, because the file may come from anybody."""
    tree = need("defusedxml.ElementTree", file.path)
    common = need("defusedxml.common", file.path)
    try:
        parser = tree.XMLParser()
        body, record = None, _Markup(file, parser)
        for event, element in tree.iterparse(record, events=("start", "end"), parser=parser):
            if event == "start":
                body = element if _local(element.tag) == "body" else body
            elif _local(element.tag) == "tu":
                yield dict(
                    map(_variant, (child for child in element if _local(child.tag) == "tuv"))
                )
                record.begin()
                if body is not None:
                    body.clear()  # otherwise, what has been read would fill the memory
    except DataError:
        raise
    except (
        tree.ParseError,
        common.DefusedXmlException,
        ValueError,  # an encoding of several bytes
        LookupError,  # one that nobody knows
        RecursionError,
    ) as error:
        if "no element found" in str(error):
            raise DataError(
                f"{file.path} ends in the middle of an entry, as if it had not been copied whole; "
                "download or export it again"
            ) from None
        raise DataError(
            f"{file.path} is not a readable TMX file ({error}); export it again, as UTF-8"
        ) from None


def _variant(element: Any) -> tuple[str, str]:
    language = element.get(TMX_LANGUAGE) or element.get("lang") or ""
    segment = next((child for child in element if _local(child.tag) == "seg"), None)
    text = "" if segment is None else "".join(_words(segment))
    return language.lower().replace("_", "-"), " ".join(text.split())


def _words(element: Any) -> Iterator[str]:
    """Return the text of a segment without the codes of the program in which it was written."""
    if _local(element.tag) not in TMX_CODES:
        yield element.text or ""
        for inner in element:
            yield from _words(inner)
            yield inner.tail or ""


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]


def read_tmx(file: OpenedFile, sieve: Sieve) -> Iterator[Raw]:
    """Read the translation units of a TMX file in the wanted languages."""
    languages = [str(column).lower().replace("_", "-") for column in sieve.config.columns]
    for number, unit in zip(count(1), read_units(file)):
        place = Place(file.path, number, unit="unit")
        texts = [in_language(unit, language) for language in languages]
        if None in texts:
            missing = languages[texts.index(None)]
            what = f"there is no text in {missing!r} (only in {', '.join(map(repr, unit))})"
            sieve.reject("malformed", place, what)
            continue
        yield Raw([text for text in texts if text is not None], place)


def in_language(unit: dict[str, str], language: str) -> str | None:
    """Return the text in a language. `en` also finds `en-US`."""
    if language in unit:
        return unit[language]
    return next((unit[name] for name in unit if name.split("-")[0] == language), None)
