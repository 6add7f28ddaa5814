"""Writes files whole or not at all, takes locks, and refuses harmful entries in folders from
others."""

import errno
import hashlib
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from filelock import FileLock, Timeout

from clearhead.errors import DataError, FolderError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

PARTIAL = ".part"
"""The ending of the name of a file that is being written."""
PARTIAL_NAME = rf"\.[0-9a-f]{{16}}{re.escape(PARTIAL)}"
"""The pattern of what `NewFile` adds to a name."""
_PLAIN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)  # Unix; Windows
_MODE = 0o644  # minus the bits that the umask removes


class NewFile:
    """A file that is written under a temporary name beside `path`. `finish` syncs every byte to the
    disk and then renames the file to `path`; an older file at `path` stays until then. As a context
    manager, it finishes at the end of the block, or leaves nothing after an error."""

    def __init__(self, path: Path) -> None:
        self.path = path
        refuse_folder(path)
        # The file is made like mkstemp's, under an unpredictable name, but with the mode that the
        # umask allows: only the owner could read a file of mkstemp's.
        self.beside = path.with_name(f"{path.name}.{secrets.token_hex(8)}{PARTIAL}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _PLAIN
        try:
            descriptor = os.open(self.beside, flags, _MODE)
        except OSError as error:  # which would name the temporary file, unknown to the user
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
    """Write a file atomically: it has either the old content or the new content, never a part of
    it."""
    with NewFile(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Syncs a file's bytes, or the names in a folder, to the disk; without it, a power cut may undo
    a rename."""
    is_folder = path.is_dir()
    if os.name == "nt" and is_folder:  # Windows needs no sync of names
        return
    handle = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)  # Windows syncs what may write
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def open_plain(path: Path, flags: int) -> int:
    """Open a file that is to be changed in place, and return its descriptor. A symbolic link is
    refused, and so is a file that has a second name (a hard link)."""
    refuse_link(path)
    refuse_folder(path)
    descriptor = os.open(path, flags & ~os.O_TRUNC | _PLAIN, _MODE)
    try:
        _refuse_hard_link(path, os.fstat(descriptor))
        if flags & os.O_TRUNC:
            os.ftruncate(descriptor, 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def refuse_folder(path: Path) -> None:
    """Raises if the path is a folder, where a file should be."""
    if path.is_dir():
        raise FolderError(f"{path} is a folder where a file should be; rename it or remove it")


def refuse_link(path: Path) -> None:
    """Raises if the path is a symbolic link."""
    if path.is_symlink():
        raise FolderError(
            f"{path} is a link, and a link can point to any of your files; put the file itself "
            "there (cp -rL copies a folder with the files that its links point to)"
        )


def _refuse_hard_link(path: Path, about: os.stat_result) -> None:
    if about.st_nlink > 1:
        raise FolderError(
            f"{path} is a hard link: the same file has another name, and may be one of your own; "
            f"make it a separate file: cp {path} {path}.copy && mv {path}.copy {path}"
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
    """Hold a lock that one process at a time can hold; others are refused. The lock ends with the
    process that holds it."""
    refuse_link(path)  # filelock would only report "too many levels of symbolic links"
    if path.exists():
        _refuse_hard_link(path, path.stat())  # some versions of filelock empty the file
    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise DataError(refusal) from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def folder_beside(target: Path) -> Iterator[Path]:
    """Make a hidden folder beside `target`, in which files are prepared before they get that name.
    The folder is removed at the end of the block. If a process is killed before that, the next
    process removes its folder (but not on Windows, nor on disks without locks)."""
    parent = target.parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        remove_unfinished(target)
        folder, held = _new_folder(_prefix(target), parent)
    except OSError as error:
        error.filename = str(target)  # and not the hidden one
        raise
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if held is not None:
            os.close(held)


def remove_unfinished(target: Path) -> None:
    """Remove the folders that killed processes left beside `target` (see `folder_beside`)."""
    for path in list(target.parent.iterdir()):
        if re.fullmatch(rf"{re.escape(_prefix(target))}\w{{8}}", path.name):
            _remove_if_left(path)


def _prefix(target: Path) -> str:
    return f".{target.name}.unfinished-"


def _new_folder(prefix: str, parent: Path) -> tuple[Path, int | None]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        try:
            return folder, _hold(folder)
        except (BlockingIOError, FileNotFoundError):  # another process has just removed it
            continue
        except OSError:
            return folder, None


def _remove_if_left(folder: Path) -> None:
    try:
        held = _hold(folder)
    except OSError:  # its process is still running, or this is a link or a file
        return
    shutil.rmtree(folder, ignore_errors=True)
    os.close(held)


def _hold(folder: Path) -> int:
    """Lock the folder for this process, and return its descriptor. The lock follows the folder when
    it is renamed, and ends when the descriptor is closed or the process is killed."""
    if fcntl is None:
        raise OSError(errno.ENOTSUP, "folders cannot be locked here", str(folder))
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        folder.lstat()  # it may have been removed before it was locked
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
