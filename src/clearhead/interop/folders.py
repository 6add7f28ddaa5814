"""Reads folders and files that are untrusted input, and writes folders that are either complete or
absent."""

import json
import re
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clearhead.errors import FolderError
from clearhead.files import folder_beside, refuse_link, sync

MAX_JSON_BYTES = 64 * 2**20
"""The largest size of a JSON file that is read, far above any real shard index; a tokenizer.json of
a million tokens fits."""
MAX_CONFIG_BYTES = 4 * 2**20
"""The largest size of a config.json, a file of labels and similar files: the names of 20,000
classes fit."""


def refuse_address(folder: Path) -> None:
    """Raises for the address of a model on the Internet, in which a path has lost a slash."""
    address = re.fullmatch(r"https?:/+([^/]+)/(?:([^/]+(?:/[^/]+)?)(?:/.*)?)?", str(folder))
    if address is None:
        return
    host, name = address.groups()
    if name is None or host.removeprefix("www.") not in ("huggingface.co", "hf.co"):
        raise FolderError(
            f"{host} is an address, and addresses are not downloaded; download the folder first, "
            "and name it here"
        )
    name = name.removesuffix("/tree").removesuffix("/blob").removesuffix("/resolve")
    own = name.rpartition("/")[2]
    raise FolderError(
        f"https://{host}/{name} is an address, and addresses are not downloaded; run first: hf "
        f"download {shlex.quote(name)} --local-dir {shlex.quote(own)}; then name the folder {own}"
    )


def regular_file(folder: Path, name: str) -> Path:
    """Return the path of a regular file in the folder itself. A link could point anywhere, and a
    pipe would never end."""
    path = folder / name
    if name in ("", ".", "..") or any(separator in name for separator in ("/", "\\", "\0")):
        raise FolderError(f"{name!r} is not the name of a file in {folder}; name it without a path")
    try:
        mode = path.lstat().st_mode
    except OSError:
        raise FolderError(f"{folder} has no {name}; is it a model folder?") from None
    refuse_link(path)
    if not stat.S_ISREG(mode):
        raise FolderError(f"{path} is not a regular file; put the file itself there")
    return path


def has_file(folder: Path, name: str) -> bool:
    """Tell whether anything of that name exists; `regular_file` says whether it can be used."""
    return (folder / name).exists() or (folder / name).is_symlink()


def read_bytes(folder: Path, name: str, *, most: int = MAX_JSON_BYTES) -> bytes:
    """Return the content of a file in the folder, with a limit on its bytes."""
    path = regular_file(folder, name)
    size = path.stat().st_size
    if size > most:
        raise FolderError(f"{path} has {size:,} bytes, more than {most:,}; is it damaged?")
    return path.read_bytes()


def read_text(folder: Path, name: str, *, most: int = MAX_JSON_BYTES) -> str:
    """Return the UTF-8 text of a file in the folder, with a limit on its bytes."""
    try:
        return read_bytes(folder, name, most=most).decode("utf-8")
    except UnicodeDecodeError as error:
        raise FolderError(f"{folder / name} is not UTF-8 text ({error}); is it damaged?") from None


def read_json(folder: Path, name: str, *, most: int = MAX_CONFIG_BYTES) -> dict[str, Any]:
    """Return the object in a JSON file, with a limit on its bytes."""
    text = read_text(folder, name, most=most)
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise FolderError(f"{folder / name} is not valid JSON ({error}); is it damaged?") from None
    if not isinstance(value, dict):
        raise FolderError(f"{folder / name} holds {type(value).__name__}, not an object {{…}}")
    return value


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not a JSON number")


def write_json(folder: Path, name: str, value: dict[str, Any]) -> None:
    """Write an object as indented JSON."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    (folder / name).write_text(text + "\n", encoding="utf-8")


@contextmanager
def whole_or_absent(folder: Path) -> Iterator[Path]:
    """Make a folder to write into. The folder gets its name only if the block ends without an error
    and everything in it is on the disk. After an error, nothing is left; if the process is killed,
    at most a hidden folder beside it is left, which the next start removes."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FolderError(f"{folder} already exists; name a new folder, or remove it first")
    if folder.name in ("", ".."):
        raise FolderError(f"{folder} is not a valid name for a new folder; try {folder}/model")
    with folder_beside(folder) as unfinished:
        yield unfinished
        # a new hidden folder is private, and so are the files of safetensors
        unfinished.chmod(0o755)
        for path in unfinished.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
            sync(path)
        sync(unfinished)
        unfinished.replace(folder)
        sync(folder.parent)
