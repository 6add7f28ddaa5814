"""Reads files as unpacked bytes: plain, gzip or zstd, as the extension says."""

import gzip
import io
import os
import shlex
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from clearhead.errors import DataError
from clearhead.intake.missing import no_such_file

COMPRESSIONS = ("", ".gz", ".zst")
READ_SIZE = 1 << 18
MAX_RECORD = 1 << 26
"""The highest number of unpacked bytes of one record (a row, a unit, a line), if no lower limit is
set. A file that is read as a whole may always unpack to this many."""
MAX_GROWTH = 100
"""A file that is read as a whole may unpack to this many times its own size."""
ZSTD_READ_SIZE = 1 << 10
"""Four bytes of zstd can unpack to 128 KB. Reading this many at a time keeps the unpacked bytes
below 32 MB."""


class Input(NamedTuple):
    """Input that is read together: one file, or two files that are parallel line by line; with the
    label that all of its texts have, if any."""

    paths: tuple[Path, ...]
    label: str | None = None

    @property
    def size(self) -> int:
        """The size of the files on disk, in bytes."""
        return sum(path.stat().st_size for path in self.paths)


class OpenedFile(NamedTuple):
    """A file that is open for reading: its unpacked bytes, and the raw file, which shows the
    progress."""

    path: Path
    data: BinaryIO
    raw: BinaryIO

    def position(self) -> int:
        """The number of bytes read from the packed file so far."""
        return 0 if self.raw.closed else self.raw.tell()


def open_bytes(path: Path, stack: ExitStack) -> OpenedFile:
    """Open a file for reading its unpacked bytes."""
    try:
        raw = stack.enter_context(path.open("rb"))
    except FileNotFoundError:
        raise no_such_file(path) from None
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror}); check the path and its permissions"
        ) from None
    match path.suffix:
        case ".gz":
            packed = gzip.GzipFile(fileobj=raw)
        case ".zst":
            packed = _Zstd(raw, path)
        case _:
            return OpenedFile(path, raw, raw)
    data = stack.enter_context(io.BufferedReader(cast(io.RawIOBase, packed), READ_SIZE))
    return OpenedFile(path, cast(BinaryIO, data), raw)


@contextmanager
def opened(input_files: Input) -> Iterator[list[OpenedFile]]:
    """Open the files of an input for reading, inside the block."""
    with ExitStack() as stack:
        yield [open_bytes(path, stack) for path in input_files.paths]


def read_all(file: OpenedFile) -> bytes:
    """Read all bytes of a file, unpacked, up to a limit in proportion to its size on disk."""
    with naming(file.path):
        if file.data is file.raw:
            return file.data.read()
        size = os.fstat(file.raw.fileno()).st_size
        limit = max(MAX_RECORD, MAX_GROWTH * size)
        content = file.data.read(limit + 1)
    if len(content) > limit:
        raise DataError(
            f"{file.path} has {size:,} bytes and unpacks to more than {limit:,}; if that is right, "
            "unpack it first"
        )
    return content


class OneRecord(io.RawIOBase):
    """Passes the bytes of a file to a reader of whole records, which calls `begin` after each
    record. A record beyond the limit is an error before it fills the memory."""

    def __init__(self, file: OpenedFile, remedy: str = "is it damaged?") -> None:
        self.file = file
        self.remedy = remedy
        self.taken = 0

    def begin(self) -> None:
        """Begin the next record."""
        self.taken = 0

    def readable(self) -> bool:
        """Always true: io.RawIOBase asks."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Read the next bytes of the record, and count them against its limit."""
        with naming(self.file.path):
            piece = self.file.data.read(min(len(buffer), READ_SIZE))
        self.taken += len(piece)
        if self.taken > MAX_RECORD:
            raise DataError(
                f"{self.file.path} has a record of more than {MAX_RECORD:,} bytes; {self.remedy}"
            )
        buffer[: len(piece)] = piece
        return len(piece)


def text_of(record: OneRecord, encoding: str, errors: str) -> io.TextIOWrapper:
    """Return the file as text, with all line ends unchanged."""
    return io.TextIOWrapper(io.BufferedReader(record), encoding, errors=errors, newline="")


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turn damage inside a packed file into an error that names the file."""
    try:
        yield
    except gzip.BadGzipFile as error:
        raise DataError(
            f"{path} is not packed by gzip, although its name ends in .gz ({error}); rename it"
        ) from None
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(
            f"{path} cannot be read completely ({error}); the file is cut off or damaged: "
            "get it again"
        ) from None


class _Zstd(io.RawIOBase):
    """Reads frames of zstd, one after the other. The library's own stream ends silently if a file
    is cut off; this one raises EOFError, as gzip does."""

    def __init__(self, raw: BinaryIO, path: Path) -> None:
        self._module = need("zstandard", path)
        self._raw, self._path = raw, path
        self._frame = self._module.ZstdDecompressor().decompressobj()
        self._inside = False
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        while not self._ready:
            packed = self._raw.read(ZSTD_READ_SIZE)
            if not packed:
                if self._inside:
                    raise EOFError("a zstd frame has no end")
                return 0
            self._ready = memoryview(self._unpack(packed))
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size

    def _unpack(self, packed: bytes) -> bytes:
        unpacked = b""
        while packed:
            try:
                unpacked += self._frame.decompress(packed)
            except self._module.ZstdError as error:
                if "too much memory" in str(error):
                    plain = self._path.with_suffix("")
                    again = plain.with_suffix(f".again{plain.suffix}.zst")
                    here, made = (shlex.quote(str(path)) for path in (self._path, again))
                    raise DataError(
                        f"{self._path} was packed with a window that takes much memory to unpack; "
                        f"pack it again, and remove it: zstd -dc --long=31 {here} | zstd > {made}"
                    ) from None
                raise OSError(str(error)) from None
            packed = self._frame.unused_data
            self._inside = not self._frame.eof
            if self._frame.eof:
                self._frame = self._module.ZstdDecompressor().decompressobj()
        return unpacked


def need(module: str, path: Path):
    """Import an optional package. An error says how to get it."""
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError:
        raise DataError(
            f"{path} needs the package {module.split('.')[0]}; "
            'install it with: pip install "clearhead[corpus]"'
        ) from None
