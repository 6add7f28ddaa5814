"""Reads files as unpacked bytes: plain, gzip or zstd, as the ending of the name says."""

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

COMPRESSIONS = ("", ".gz", ".zst")
READ_SIZE = 1 << 18
MAX_RECORD = 1 << 26
"""Unpacked bytes of one record (a row, a unit, a line) where nothing smaller is the limit; a file
that is read as a whole may always unpack to so many."""
MAX_GROWTH = 100
"""How many times its own size a file that is read as a whole may unpack to."""
ZSTD_READ_SIZE = 1 << 10
"""Four bytes of zstd can unpack to 128 KB: so many at a time keep what is unpacked below 32 MB."""


class Input(NamedTuple):
    """Input that is read together: one file, or two in step; and the label of all that is in it."""

    paths: tuple[Path, ...]
    label: str | None = None

    @property
    def size(self) -> int:
        """Bytes of the files on disk."""
        return sum(path.stat().st_size for path in self.paths)


class OpenedFile(NamedTuple):
    """A file open for reading: its bytes unpacked, and the raw file that progress is read from."""

    path: Path
    data: BinaryIO
    raw: BinaryIO

    def position(self) -> int:
        """Bytes read from the packed file so far."""
        return 0 if self.raw.closed else self.raw.tell()


def open_bytes(path: Path, stack: ExitStack) -> OpenedFile:
    """Opens a file for reading its unpacked bytes."""
    try:
        raw = stack.enter_context(path.open("rb"))
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
    """The files of an input, open for reading inside the block."""
    with ExitStack() as stack:
        yield [open_bytes(path, stack) for path in input_files.paths]


def read_all(file: OpenedFile) -> bytes:
    """All bytes of a file, unpacked: in proportion to its size on disk."""
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
    """The bytes of a file for a reader of whole records, which calls `begin` after each. A record
    beyond the limit is an error, before it fills the memory."""

    def __init__(self, file: OpenedFile, remedy: str = "is it damaged?") -> None:
        self.file = file
        self.remedy = remedy
        self.taken = 0

    def begin(self) -> None:
        """The next record begins."""
        self.taken = 0

    def readable(self) -> bool:
        """Always: io.RawIOBase asks."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The next bytes of the record, counted against its limit."""
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
    """The file as text, with all line ends as they are."""
    return io.TextIOWrapper(io.BufferedReader(record), encoding, errors=errors, newline="")


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Damage inside a packed file becomes an error that names the file."""
    try:
        yield
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(
            f"{path} cannot be read completely ({error}); the file is cut off or damaged: "
            "get it again"
        ) from None


class _Zstd(io.RawIOBase):
    """Frames of zstd, one after the other. The library's own stream ends silently where a file is
    cut off; this one raises EOFError, as gzip does."""

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
    """An optional package, or an error that says how to get it."""
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError:
        raise DataError(
            f"{path} needs the package {module.split('.')[0]}; "
            'install it with: pip install "clearhead[corpus]"'
        ) from None
