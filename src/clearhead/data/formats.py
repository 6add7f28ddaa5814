"""The formats of text files, each as a generator of documents."""

import io
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from clearhead.config.data import DataConfig
from clearhead.data.dirt import Place, Sieve
from clearhead.data.unpack import READ_SIZE, Opened, naming, need

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Document(NamedTuple):
    """One text, the two sides of a pair, or a text and its label; and where it came from."""

    texts: tuple[str, ...]
    place: Place


def read_documents(
    files: Sequence[Opened], config: DataConfig, split: str, sieve: Sieve
) -> Iterator[Document]:
    """The documents of one file, or of two that are read line by line together."""
    documents = _documents(files, config, split, sieve)
    in_columns = config.task == "classification" and config.format != "labelled"
    return _with_known_labels(documents, config, sieve) if in_columns else documents


def _documents(
    files: Sequence[Opened], config: DataConfig, split: str, sieve: Sieve
) -> Iterator[Document]:
    match config.format:
        case "text" if config.document == "file":
            return _whole_file(files[0], config, split, sieve)
        case "text" | "labelled":
            return _clean(_lines(files[0], sieve), sieve)
        case "parallel":
            return _clean(_parallel(files, sieve), sieve)
        case "tsv":
            return _clean(_records(files[0], sieve, _TabSeparated(config.columns)), sieve)
        case "jsonl":
            return _clean(_records(files[0], sieve, _json_fields(config.columns)), sieve)
        case "parquet":
            return _clean(_parquet(files[0], config.columns, sieve), sieve)


def count_lines(file: Opened, config: DataConfig) -> int:
    """The number of lines or rows of a file, valid or not."""
    if config.format == "parquet":
        return _table(file).metadata.num_rows
    n, ended = 0, True
    with naming(file.path):
        while piece := file.data.read(READ_SIZE):
            n, ended = n + piece.count(b"\n"), piece.endswith(b"\n")
    return n if ended else n + 1


Raw = tuple[list[bytes | str], Place]


def _clean(records: Iterator[Raw], sieve: Sieve) -> Iterator[Document]:
    for fields, place in records:
        if not fields or not sieve.wants(place):
            continue  # rejected already, or of another split
        texts: list[str] = []
        for field in fields:
            text = sieve.clean(field, place)
            if text is None:
                break  # one bad side is enough, and is counted once
            texts.append(text)
        else:
            yield Document(tuple(texts), place)


def _with_known_labels(
    documents: Iterator[Document], config: DataConfig, sieve: Sieve
) -> Iterator[Document]:
    for document in documents:
        label = document.texts[-1]
        if label in config.labels:
            yield document
        else:
            sieve.reject("malformed", document.place, f"the label {label!r} is not in data.labels")


def _whole_file(file: Opened, config: DataConfig, split: str, sieve: Sieve) -> Iterator[Document]:
    """A file as one document, to the last byte, or the part of it that belongs to the split."""
    with naming(file.path):
        raw = file.data.read().removeprefix(BYTE_ORDER_MARK)
    place = Place(file.path, 1)
    text = sieve.decode(raw, place)
    if text is None:
        return
    share = config.share(split, len(text))
    text = text[share.start : share.stop]
    if not text.strip():
        sieve.reject("blank", place, "no text in the file")
        return
    yield Document((text,), place)


def _lines(file: Opened, sieve: Sieve) -> Iterator[Raw]:
    """Lines end in LF or CRLF, and nowhere else: U+2028 and similar characters are text."""
    limit = sieve.config.max_bytes
    number = 0
    while True:
        with naming(file.path):
            line = file.data.readline(limit + 2)
        if not line:
            return
        number += 1
        place = Place(file.path, number)
        if number == 1:
            line = line.removeprefix(BYTE_ORDER_MARK)
        ended = line.endswith(b"\n")
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        if len(line) > limit:
            while not ended and (rest := file.data.readline(limit)):
                ended = rest.endswith(b"\n")
            sieve.reject("too-long", place, f"a line of more than {limit} bytes (data.max_bytes)")
            yield [], place  # keeps two files in step
            continue
        yield [line], place


def _parallel(files: Sequence[Opened], sieve: Sieve) -> Iterator[Raw]:
    readers = [_lines(file, sieve) for file in files]
    last = 0
    for lines in zip_longest(*readers):
        if None in lines:
            short, longer = (files[0], lines[1]) if lines[0] is None else (files[1], lines[0])
            what = f"the other file has no such line: {short.path.name} has only {last} lines"
            sieve.reject("unequal", longer[1], what)
            continue
        last += 1
        fields = [field for line, _ in lines for field in line]
        if len(fields) == len(files):
            yield fields, lines[0][1]


FieldsOf = Callable[[bytes], list[bytes | str]]


def _records(file: Opened, sieve: Sieve, fields_of: FieldsOf) -> Iterator[Raw]:
    for line, place in _lines(file, sieve):
        if not line:
            continue
        content = line[0]
        assert isinstance(content, bytes)
        if not content.strip():
            sieve.reject("blank", place, "a blank line")
            continue
        try:
            yield fields_of(content), place
        except UnicodeDecodeError:
            sieve.decode(content, place)  # counts or raises
        except ValueError as error:
            sieve.reject("malformed", place, str(error))


class _TabSeparated:
    """Every line has as many columns as the first."""

    def __init__(self, columns: Sequence[int | str]) -> None:
        self.columns = [int(column) for column in columns]
        self.expected = 0

    def __call__(self, line: bytes) -> list[bytes | str]:
        cells = line.split(b"\t")
        self.expected = self.expected or max(len(cells), *self.columns)
        if len(cells) != self.expected:
            raise ValueError(f"{len(cells)} column(s) where {self.expected} are expected")
        return [cells[column - 1] for column in self.columns]


def _json_fields(columns: Sequence[int | str]) -> FieldsOf:
    def fields_of(line: bytes) -> list[bytes | str]:
        text = line.decode("utf-8")
        try:
            record = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"not JSON ({error.msg}, character {error.pos + 1})") from None
        return [_field(record, str(column)) for column in columns]

    return fields_of


def _field(record: Any, column: str) -> str:
    if not isinstance(record, dict):
        raise ValueError(f"a JSON {type(record).__name__} where an object is expected")
    if column not in record:
        raise ValueError(f"no field {column!r} (there are {', '.join(map(repr, record))})")
    value = record[column]
    if not isinstance(value, str):
        raise ValueError(f"field {column!r} is {value!r}, not text")
    return value


def _table(file: Opened) -> Any:
    parquet = need("pyarrow.parquet", file.path)
    packed = file.data is not file.raw
    try:
        return parquet.ParquetFile(io.BytesIO(file.data.read()) if packed else file.raw)
    except Exception as error:
        with naming(file.path):
            raise OSError(str(error)) from None


def _parquet(file: Opened, columns: Sequence[int | str], sieve: Sieve) -> Iterator[Raw]:
    names = [str(column) for column in columns]
    row = 0
    for batch in _table(file).iter_batches(batch_size=1024, columns=names):
        for record in batch.to_pylist():
            row += 1
            place = Place(file.path, row)
            try:
                yield [_field(record, name) for name in names], place
            except ValueError as error:
                sieve.reject("malformed", place, str(error))
