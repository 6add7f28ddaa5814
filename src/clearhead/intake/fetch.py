"""Downloads a file. A download resumes after an interruption, and only the file's hash is
trusted."""

import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from clearhead.errors import DataError
from clearhead.files import PARTIAL, open_plain, refuse_link, sha256_of

BLOCK = 1 << 16
TIMEOUT = 30  # seconds without a byte
N_TRIES = 5  # attempts in a row that bring no byte

DownloadProgress = Callable[[int, int], None]


def fetch(
    url: str, path: Path, *, size: int, sha256: str, report: DownloadProgress = lambda *_: None
) -> None:
    """Download exactly the expected bytes to `path`, or raise and leave nothing there."""
    if path.is_file() and sha256_of(path) == sha256:
        report(size, size)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    # The name is fixed, unlike those of other temporary files, so that a broken download can
    # resume.
    partial = path.with_name(path.name + PARTIAL)
    refuse_link(partial)
    if partial.is_file() and partial.stat().st_size > size:
        partial.unlink()
    fruitless = 0
    while (have := _size(partial)) < size:
        problem = _take(url, partial, have, size, report)
        fruitless = 0 if _size(partial) > have else fruitless + 1
        if fruitless == N_TRIES:
            raise DataError(
                f"{url} cannot be downloaded: {problem}; run the same command to resume"
            )
    digest = sha256_of(partial)
    if digest != sha256:
        partial.unlink()
        raise DataError(
            f"{url} does not have the expected sha256 ({digest[:16]}…, not {sha256[:16]}…); "
            "the file has changed at its source, or the connection was tampered with"
        )
    partial.replace(path)


def _take(url: str, partial: Path, have: int, size: int, report: DownloadProgress) -> str:
    """Append what one connection delivers, but never more than is wanted. Returns the reason why it
    ended."""
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            if have and answer.status != http.client.PARTIAL_CONTENT:
                have = 0  # the server does not support ranges, so start again
            fresh = 0 if have else os.O_TRUNC
            descriptor = open_plain(partial, os.O_WRONLY | os.O_CREAT | fresh)
            with os.fdopen(descriptor, "wb") as file:
                file.seek(have)
                while have < size and (block := answer.read(min(BLOCK, size - have))):
                    have += file.write(block)
                    report(have, size)
        return f"the server ended after {have} of {size} bytes"
    except urllib.error.HTTPError as error:
        return f"the server answers {error.code} {error.reason}"
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        return str(getattr(error, "reason", error))


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
