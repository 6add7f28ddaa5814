"""Files that are written whole or not at all, locks, and folders that may come from somebody
else."""

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
_MODE = 0o644  # less what the umask takes away


class NewFile:
    """A file that is written beside its place, and takes its name (`path`) when `finish` has
    brought every byte to the disk. What stood there before stays until then. As a context manager
    it finishes at the end, or leaves nothing after an error."""

    def __init__(self, path: Path) -> None:
        self.path = path
        refuse_folder(path)
        # A new file under an unpredictable name, as mkstemp makes it, except for its mode:
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


def sha256_of(path: Path) -> str:
    """The sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Syncs a file's bytes, or the names in a folder, to the disk; without it, a power cut may undo
    a rename."""
    is_folder = path.is_dir()
    if os.name == "nt" and is_folder:  # names need no syncing there
        return
    handle = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)  # Windows syncs what may write
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def open_plain(path: Path, flags: int) -> int:
    """A descriptor of a file that is changed in its place: of the file itself, never of a file that
    a link in its place points to, nor of one that has another name."""
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
    """Raises if a folder stands in place of a file."""
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
            f"make it a file of its own: cp {path} {path}.copy && mv {path}.copy {path}"
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
    """A new hidden folder beside a place, for what will get that name. What is left of it at the
    end is removed; what a process that was killed has left, when the next one starts (but not on
    Windows, nor on disks without locks)."""
    prefix, parent = f".{target.name}.unfinished-", target.parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for path in list(parent.iterdir()):
            if re.fullmatch(rf"{re.escape(prefix)}\w{{8}}", path.name):
                _remove_if_left(path)
        folder, held = _new_folder(prefix, parent)
    except OSError as error:
        error.filename = str(target)  # and not the hidden one
        raise
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if held is not None:
            os.close(held)


def _new_folder(prefix: str, parent: Path) -> tuple[Path, int | None]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        try:
            return folder, _hold(folder)
        except (BlockingIOError, FileNotFoundError):  # another process came between, to remove it
            continue
        except OSError:
            return folder, None


def _remove_if_left(folder: Path) -> None:
    try:
        held = _hold(folder)
    except OSError:  # its process works on it; or it is a link or a file
        return
    shutil.rmtree(folder, ignore_errors=True)
    os.close(held)


def _hold(folder: Path) -> int:
    """A descriptor by which this process has the folder for itself, under any name, until it is
    closed or the process is killed."""
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
