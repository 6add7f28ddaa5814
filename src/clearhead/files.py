"""Files that are whole or as they were, locks, and folders that somebody else may have sent."""

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from filelock import FileLock, Timeout

from clearhead.errors import DataError, FolderError

PARTIAL = ".part"
"""How the name of a file ends that is being written."""
PARTIAL_NAME = rf"\.[0-9a-f]{{16}}{re.escape(PARTIAL)}"
"""What `NewFile` adds to a name, as a pattern."""
_PLAIN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)  # Unix; Windows
_MODE = 0o644  # less what the umask takes away


class NewFile:
    """A file that is written beside its place, and takes its name (`path`) when `finish` has
    brought every byte to the disk. What stood there before stays until then. As a context manager
    it finishes at the end, or leaves nothing after an error."""

    def __init__(self, path: Path) -> None:
        self.path = path
        refuse_folder(path)
        # What mkstemp does, a new file under an unpredictable name, but for its mode:
        # mkstemp's files can be read by their owner only, whatever the umask says.
        self.beside = path.with_name(f"{path.name}.{secrets.token_hex(8)}{PARTIAL}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _PLAIN
        try:
            descriptor = os.open(self.beside, flags, _MODE)
        except OSError as error:  # which names a file that nobody knows
            raise OSError(error.errno, error.strerror, str(path)) from None
        self._file = os.fdopen(descriptor, "wb")

    def write(self, content: bytes) -> None:
        """Appends bytes."""
        self._file.write(content)

    def finish(self) -> None:
        """Syncs the bytes to the disk and gives the file its name."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self.beside.replace(self.path)

    def discard(self) -> None:
        """Removes the new file; the old one stays."""
        try:
            self._file.close()
        except OSError:  # a full disk does not take what is left in the buffer
            pass
        finally:
            self.beside.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is not None:
            self.discard()
            return
        try:
            self.finish()
        except BaseException:
            self.discard()
            raise


def write_whole(path: Path, content: str | bytes) -> None:
    """Writes a file atomically: it has the old content or the new one, never a part."""
    with NewFile(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def sync(path: Path) -> None:
    """Onto the disk: a file's bytes, or the names in a folder, without which a power cut may undo a
    rename."""
    is_folder = path.is_dir()
    if os.name == "nt" and is_folder:  # names need no syncing there
        return
    handle = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)  # Windows syncs what may write
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def open_plain(path: Path, flags: int) -> int:
    """A descriptor of the file itself, never of a file that a link in its place points to."""
    refuse_link(path)
    refuse_folder(path)
    return os.open(path, flags | _PLAIN, _MODE)


def refuse_folder(path: Path) -> None:
    """Raises if a folder stands in the place of a file."""
    if path.is_dir():
        raise FolderError(f"{path} is a folder where a file should be; rename it or remove it")


def refuse_link(path: Path) -> None:
    """Raises if the path is a symbolic link."""
    if path.is_symlink():
        raise FolderError(
            f"{path} is a link, and a link can point to any of your files; put the file itself "
            "there (cp -rL copies a folder with the files that its links point to)"
        )


def refuse_unusual(folder: Path) -> None:
    """Refuses a folder with a link, a pipe or a device anywhere in it, before anything is read from
    it or written to it. The path of the folder may itself be a link: the user has named it."""
    waiting = [folder] if folder.is_dir() else []
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                refuse_link(Path(entry.path))
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
                elif not entry.is_file(follow_symlinks=False):
                    raise FolderError(
                        f"{entry.path} is a pipe or a device, and reading it might never end; "
                        "remove it"
                    )


@contextmanager
def locked(path: Path, refusal: str) -> Iterator[None]:
    """One process holds the lock at a time; others are refused. It dies with its holder."""
    refuse_link(path)  # filelock would say no more than "too many levels of symbolic links"
    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise DataError(refusal) from None
    try:
        yield
    finally:
        lock.release()
