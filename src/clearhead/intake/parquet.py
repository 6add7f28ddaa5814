"""Reads Parquet within bounds. A few kilobytes of Parquet can stand for gigabytes: a page unpacks
to whatever size its header says, and one long value of a dictionary can occur in every row.
Therefore, the headers of all pages are checked before Arrow reads the first row."""

import io
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple

from clearhead.errors import DataError
from clearhead.intake.unpack import MAX_GROWTH, MAX_RECORD, OpenedFile, naming, need, read_all

MAX_BATCH = 2**28
"""The highest number of bytes of the rows that are read together."""
BATCH = 1024
"""The highest number of rows that are read together."""
ROWS_OF_A_BYTE = 1000
"""The highest number of rows for each byte of a file. More rows are not text, since they can only
come from one repeated row."""
MAGIC = b"PAR1"
HEAD = 2**16
MAX_HEAD = 2**24
TYPES = ("BYTE_ARRAY", "INT32", "INT64", "BOOLEAN")
"""The types in which text is stored, and labels that are numbers."""
LOGICAL_TYPES = ("STRING", "INT", "ENUM", "JSON", "NONE")
"""Logical types that can be text or labels; dates and times, which are stored as integers,
cannot."""
DICTIONARY_PAGE = 2
DELTA_BYTE_ARRAY = 7


class Table(NamedTuple):
    """An open Parquet file."""

    file: OpenedFile
    data: BinaryIO
    arrow: Any

    @property
    def n_rows(self) -> int:
        """The number of rows in the file's footer. Raises if the file is too small for so many."""
        n, size = self.arrow.metadata.num_rows, self.data.seek(0, io.SEEK_END)
        if n > ROWS_OF_A_BYTE * size:
            raise DataError(
                f"{self.file.path} says that it holds {n:,} rows in {size:,} bytes, more than "
                f"{ROWS_OF_A_BYTE} for each byte; is it damaged?"
            )
        return n

    def texts(self) -> dict[str, int]:
        """Return the columns that can be text or labels, by their dotted names, with their numbers
        in the file. Such a column has one value in each row, not a list."""
        schema = self.arrow.schema
        columns = {n: schema.column(n) for n in range(len(schema.names))}
        return {
            column.path: n
            for n, column in columns.items()
            if column.physical_type in TYPES and column.max_repetition_level == 0
            if column.logical_type.type in LOGICAL_TYPES
        }

    def batches(self, names: Sequence[str]) -> Iterator[Any]:
        """Yield batches of rows of these columns, each within the limit on memory."""
        text_columns = self.texts()
        for name in names:
            if name not in text_columns:
                raise DataError(
                    f"{self.file.path} has no column {name!r} that holds text or labels; it has "
                    f"{', '.join(map(repr, text_columns)) or 'none'}; name one in data.columns"
                )
        if self.n_rows == 0:
            return
        repeatable = max(self._check_pages(text_columns[name]) for name in names)
        together = min(BATCH, max(1, MAX_BATCH // max(1, repeatable)))
        yield from _damage_named(
            self.file, self.arrow.iter_batches(batch_size=together, columns=list(names))
        )

    def _check_pages(self, column: int) -> int:
        """Check the pages of a column, and return the size in bytes of the longest value that can
        occur in many rows."""
        metadata, longest = self.arrow.metadata, 0
        for group in range(metadata.num_row_groups):
            for packed, unpacked, repeats in _pages(self, metadata.row_group(group).column(column)):
                if unpacked > max(MAX_RECORD, MAX_GROWTH * packed):
                    raise DataError(
                        f"{self.file.path} has a page of {packed:,} bytes that unpacks to "
                        f"{unpacked:,}, more than {MAX_GROWTH} times as many; is it damaged?"
                    )
                longest = max(longest, unpacked if repeats else 0)
        return longest


def open_parquet(file: OpenedFile) -> Table:
    """Open a Parquet file. An error says what to install or fix."""
    parquet = need("pyarrow.parquet", file.path)
    data = file.raw if file.data is file.raw else io.BytesIO(read_all(file))
    try:
        return Table(file, data, parquet.ParquetFile(data))
    except Exception as error:  # which is an error of Arrow's own
        data.seek(0)
        if data.read(len(MAGIC)) != MAGIC:
            raise DataError(
                f"{file.path} does not begin as Parquet does; if it is another kind of table, such "
                "as CSV, rename it to end in .csv"
            ) from None
        with naming(file.path):
            raise OSError(str(error)) from None


def _damage_named(file: OpenedFile, batches: Iterator[Any]) -> Iterator[Any]:
    while True:
        try:
            batch = next(batches, None)
        except Exception as error:
            with naming(file.path):
                raise OSError(str(error)) from None
        if batch is None:
            return
        yield batch


def records(batch: Any) -> Iterator[dict[str, Any] | None]:
    """Return the rows of a batch as Python values; None for a row with text that is not UTF-8."""
    try:
        yield from batch.to_pylist()
    except UnicodeDecodeError:
        for row in range(batch.num_rows):
            try:
                yield batch.slice(row, 1).to_pylist()[0]
            except UnicodeDecodeError:
                yield None


def _pages(table: Table, chunk: Any) -> Iterator[tuple[int, int, bool]]:
    """Yield, for each page of a column, its bytes on disk, its bytes in memory, and whether one of
    its values can occur in many rows."""
    offsets = [chunk.dictionary_page_offset or 0, chunk.data_page_offset]
    at = min((offset for offset in offsets if offset > 0), default=0)
    end = at + chunk.total_compressed_size
    while at < end:
        try:
            header, size = _header(table.data, at)
            packed, unpacked = header[3], header[2]
            if packed < 0 or unpacked < 0:
                raise ValueError("the page has a negative size")
            encoding = (header.get(5) or {}).get(2), (header.get(8) or {}).get(4)
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            with naming(table.file.path):
                raise OSError(f"there is no page at byte {at}: {error}") from None
        yield packed, unpacked, header.get(1) == DICTIONARY_PAGE or DELTA_BYTE_ARRAY in encoding
        at += size + packed


def _header(data: BinaryIO, at: int) -> tuple[dict[int, Any], int]:
    """Read the header of the page at this place, and its size. The header may contain the lowest
    and the highest value."""
    length = HEAD
    while True:
        data.seek(at)
        compact = _Compact(data.read(length))
        try:
            return compact.fields(), compact.at
        except IndexError:
            if len(compact.data) < length or length >= MAX_HEAD:
                raise
            length *= 16


class _Compact:
    """Reads the few types of Thrift's compact protocol that a page's header uses."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def fields(self, depth: int = 0) -> dict[int, Any]:
        values: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._signed()
            values[number] = self._value(head & 15, depth)
        return values

    def _value(self, kind: int, depth: int) -> Any:
        match kind:
            case 1 | 2:
                return kind == 1
            case 3:
                return self._byte()
            case 4 | 5 | 6:
                return self._signed()
            case 7:
                self.at += 8
            case 8:
                length = self._unsigned()
                self.at += length
            case 12 if depth < 4:
                return self.fields(depth + 1)
            case _:
                raise ValueError(f"a field has the unknown kind {kind}")
        return None

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            if shift > 63:
                raise ValueError("a number does not end")

    def _signed(self) -> int:
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)
