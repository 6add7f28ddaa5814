"""Stores translated files for ten minutes. The server draws a name for each file; nothing that a
client sends is part of a path. The worker processes share the folder.

A new file never replaces another. Each client has a fixed number of places, so no client can remove
what others have stored, or take all places at once.
"""

import hashlib
import math
import re
import secrets
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from clearhead.files import write_whole
from clearhead.serving.refusals import RequestError

KEPT_SECONDS = 600
MAX_FILES, MAX_BYTES = 4096, 2**28
MAX_FILES_OF_A_CLIENT, MAX_BYTES_OF_A_CLIENT = 1024, 2**26
_NAME = re.compile(r"[0-9a-f]{32}\.txt")


class StoredFile(NamedTuple):
    """A file of the folder: CLIENT-NAME.txt."""

    path: Path
    age: float
    size: int

    @property
    def client(self) -> str:
        """The hash of the client who stored the file."""
        return self.path.name.split("-")[0]


class StoredFiles:
    """The stored files, in a folder of the server's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, content: bytes, client: str) -> str:
        """Store a file, and return the name under which it can be fetched. Raises `RequestError` if
        there is no place."""
        hashed = hashlib.sha256(client.encode()).hexdigest()[:16]
        files = self._files()
        own = [file for file in files if file.client == hashed]
        for stored, most, most_bytes, status, whose in (
            (own, MAX_FILES_OF_A_CLIENT, MAX_BYTES_OF_A_CLIENT, 429, "you have"),
            (files, MAX_FILES, MAX_BYTES, 503, "there are"),
        ):
            if len(stored) >= most or sum(file.size for file in stored) > most_bytes:
                seconds = math.ceil(KEPT_SECONDS - max(file.age for file in stored))
                reason = f"{whose} {len(stored)} translated files, and no space for another"
                remedy = f"wait {max(1, seconds)} seconds, or send the text to /translate"
                raise RequestError(status, f"{reason}; {remedy}", retry_after=max(1, seconds))
        name = f"{secrets.token_hex(16)}.txt"
        write_whole(self.folder / f"{hashed}-{name}", content)
        return name

    def get(self, name: str) -> bytes | None:
        """Return the file of this name; None: there is none, or it is too old."""
        if not _NAME.fullmatch(name):
            return None
        for path in self.folder.glob(f"*-{name}"):
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime <= KEPT_SECONDS:
                    return path.read_bytes()
        return None

    def _files(self) -> list[StoredFile]:
        """Return the files that are not too old, and remove the others."""
        kept: list[StoredFile] = []
        for path in self.folder.glob("*.txt"):
            with suppress(FileNotFoundError):
                status = path.stat()
                file = StoredFile(path, time.time() - status.st_mtime, status.st_size)
                if file.age <= KEPT_SECONDS:
                    kept.append(file)
                else:
                    path.unlink()
        return kept
