"""Translated files, until they are fetched. A file has a name that the server draws; nothing that a
client sends is part of a path. The worker processes share the folder."""

import re
import secrets
import time
from pathlib import Path

from clearhead.files import write_whole

KEPT_SECONDS = 600
MAX_FILES = 256
_NAME = re.compile(r"[0-9a-f]{32}\.txt")


class StoredFiles:
    """A folder of the server's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, content: bytes) -> str:
        """The name under which it can be fetched. The oldest files make place for it."""
        files = sorted(self.folder.glob("*.txt"), key=_age, reverse=True)
        for number, file in enumerate(files):
            if _age(file) > KEPT_SECONDS or len(files) - number >= MAX_FILES:
                file.unlink(missing_ok=True)
        name = f"{secrets.token_hex(16)}.txt"
        write_whole(self.folder / name, content)
        return name

    def get(self, name: str) -> bytes | None:
        """None: there is none, or it is too old."""
        if not _NAME.fullmatch(name):
            return None
        file = self.folder / name
        try:
            return file.read_bytes() if _age(file) <= KEPT_SECONDS else None
        except FileNotFoundError:
            return None


def _age(file: Path) -> float:
    try:
        return time.time() - file.stat().st_mtime
    except FileNotFoundError:
        return float("inf")
