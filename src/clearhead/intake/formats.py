"""Reads the formats of text files. Each reader is a generator of documents."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import NamedTuple

from clearhead.config.data import INVALID_INPUT, DataConfig
from clearhead.errors import DataError
from clearhead.intake.invalid_input import Place, Sieve, only_carriage_returns
from clearhead.intake.json_values import read_values
from clearhead.intake.parquet import open_parquet
from clearhead.intake.recognise import check_text
from clearhead.intake.tables import (
    Raw,
    TabSeparated,
    json_fields,
    read_csv,
    read_json_values,
    read_parquet,
    read_tmx,
    read_units,
)
from clearhead.intake.unpack import READ_SIZE, OpenedFile, naming, read_all

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Document(NamedTuple):
    """A document (one text, the two sides of a pair, or a text and its label) and its place."""

    texts: tuple[str, ...]
    place: Place


def read_documents(files: Sequence[OpenedFile], split: str, sieve: Sieve) -> Iterator[Document]:
    """Read the documents of one file, or of two files line by line."""
    documents, config = _documents(files, split, sieve), sieve.config
    in_columns = config.task == "classification" and config.format != "labelled"
    return _with_known_labels(documents, sieve) if in_columns else documents


def _documents(files: Sequence[OpenedFile], split: str, sieve: Sieve) -> Iterator[Document]:
    config = sieve.config
    if config.format not in ("parquet", "tmx"):
        for file in files:
            check_text(file)
    match config.format:
        case "text" if config.document == "file":
            return _whole_file(files[0], split, sieve)
        case "text" | "labelled":
            return _clean(_lines(files[0], sieve), sieve)
        case "parallel":
            return _clean(_parallel(files, sieve), sieve)
        case "tsv":
            return _clean(_records(files[0], sieve, TabSeparated(config.columns)), sieve)
        case "csv":
            return _clean(read_csv(files[0], sieve), sieve)
        case "jsonl":
            return _clean(_records(files[0], sieve, json_fields(config)), sieve)
        case "json":
            return _clean(read_json_values(files[0], sieve), sieve)
        case "parquet":
            return _clean(read_parquet(files[0], sieve), sieve)
        case "tmx":
            return _clean(read_tmx(files[0], sieve), sieve)


def count_lines(file: OpenedFile, config: DataConfig) -> int:
    """Count the lines or rows of a file, valid or not."""
    if config.format == "parquet":
        return open_parquet(file).n_rows
    if config.format == "tmx":
        return sum(1 for _ in read_units(file))
    check_text(file)
    if config.format == "json":
        return sum(1 for _ in read_values(file))
    if config.format == "csv":
        lenient = Sieve(replace(config, skip=INVALID_INPUT))
        return sum(1 for _ in read_csv(file, lenient))
    n, ended, returns = 0, True, False
    with naming(file.path):
        while piece := file.data.read(READ_SIZE):
            n, ended = n + piece.count(b"\n"), piece.endswith(b"\n")
            returns = returns or (not n and b"\r" in piece.rstrip(b"\r"))
    if returns and not n and config.document != "file":
        raise only_carriage_returns(file.path)
    return n if ended else n + 1


def _clean(records: Iterator[Raw], sieve: Sieve) -> Iterator[Document]:
    for fields, place, places in records:
        if not fields or not sieve.wants(place):
            continue  # rejected already, or part of another split
        texts: list[str] = []
        for number, field in enumerate(fields):
            text = sieve.clean(field, places[number] if places else place)
            if text is None:
                break  # one invalid side is enough, and the pair is counted once
            texts.append(text)
        else:
            yield Document(tuple(texts), place)


def _with_known_labels(documents: Iterator[Document], sieve: Sieve) -> Iterator[Document]:
    for document in documents:
        label = document.texts[-1]
        if label in sieve.config.labels:
            yield document
        else:
            sieve.reject("malformed", document.place, f"the label {label!r} is not in data.labels")


def _whole_file(file: OpenedFile, split: str, sieve: Sieve) -> Iterator[Document]:
    """Read a file as one document, to the last byte, or the part of it that belongs to the
    split."""
    raw = read_all(file).removeprefix(BYTE_ORDER_MARK)
    place = Place(file.path, 1)
    text = sieve.decode(raw, place)
    if text is None:
        return
    share = sieve.config.share(split, len(text))
    text = text[share.start : share.stop]
    if not text.strip():
        sieve.reject("blank", place, "the file has no text")
        return
    yield Document((text,), place)


def _lines(file: OpenedFile, sieve: Sieve) -> Iterator[Raw]:
    """Read lines. They end in LF or CRLF and nowhere else: U+2028 and similar characters are
    text."""
    limit = sieve.config.max_bytes
    number = 0
    while True:
        with naming(file.path):
            line = file.data.readline(limit + 2 + (0 if number else len(BYTE_ORDER_MARK)))
        if not line:
            return
        number += 1
        place = Place(file.path, number)
        if number == 1:
            line = line.removeprefix(BYTE_ORDER_MARK)
        ended = line.endswith(b"\n")
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        too_long = len(line) > limit
        if too_long:
            with naming(file.path):
                while not ended and (rest := file.data.readline(limit)):
                    ended = rest.endswith(b"\n")
        if number == 1 and not ended and b"\r" in line:
            raise only_carriage_returns(file.path)
        if too_long:
            sieve.reject(
                "too-long", place, f"the line has more than {limit} bytes (data.max_bytes)"
            )
            yield Raw([], place)  # keeps two files parallel
            continue
        yield Raw([line], place)


def _parallel(files: Sequence[OpenedFile], sieve: Sieve) -> Iterator[Raw]:
    readers = [_lines(file, sieve) for file in files]
    last = 0
    for lines in zip_longest(*readers):
        if None in lines:
            short, longer = (files[0], lines[1]) if lines[0] is None else (files[1], lines[0])
            what = f"the other file has no such line: {short.path.name} has only {last} lines"
            sieve.reject("unequal", longer.place, what)
            continue
        last += 1
        fields = [field for line in lines for field in line.fields]
        if len(fields) == len(files):
            yield Raw(fields, lines[0].place, tuple(line.place for line in lines))


FieldsOf = Callable[[bytes], list[bytes | str] | None]


def _records(file: OpenedFile, sieve: Sieve, fields_of: FieldsOf) -> Iterator[Raw]:
    for line, place, _ in _lines(file, sieve):
        if not line:
            continue
        content = line[0]
        assert isinstance(content, bytes)
        if not content.strip():
            sieve.reject("blank", place, "the line is blank")
            continue
        try:
            fields = fields_of(content)
            if fields is not None:  # not the header
                yield Raw(fields, place)
        except UnicodeDecodeError:
            sieve.decode(content, place)  # counts or raises
        except DataError as error:  # about the whole file: its columns have other names
            raise DataError(f"{place.path}: {error}") from None
        except ValueError as error:
            sieve.reject("malformed", place, str(error))
