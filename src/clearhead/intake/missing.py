"""Messages about a file that does not exist."""

import os
import re
import shlex
from collections import Counter
from pathlib import Path

from clearhead.errors import DataError, closest

_WINDOWS = re.compile(r"(?:^|/)([A-Za-z]):(.*)", re.DOTALL)


def no_such_file(path: Path) -> DataError:
    """Return an error that suggests the nearest match to the given name: another file, the folder
    that is missing, or the same path as this system writes it."""
    written = str(path)
    if os.sep == "/" and ("\\" in written or _WINDOWS.search(written)):
        here = ""
        if (match := _WINDOWS.search(written)) and "\\" in written:
            here = f", in WSL {('/mnt/' + match[1].lower() + match[2].replace(chr(92), '/'))!r}"
        return DataError(
            f"there is no file {path}; this is a path of Windows, and here a path has / between "
            f"its folders{here}"
        )
    if path.is_dir():
        return DataError(f"{path} is a folder, where one file is needed; {_of_folder(path)}")
    folder = path.parent
    if not folder.is_dir():
        missing = folder
        while not missing.parent.is_dir() and missing.parent != missing:
            missing = missing.parent
        return DataError(f"there is no file {path}; there is no folder {missing}")
    files = [name for name in _names(folder) if (folder / name).is_file()]
    close = closest(path.name, files)
    remedy = f"did you mean {str(folder / close)!r}?" if close else "check the path"
    return DataError(f"there is no file {path}; {remedy}")


def _names(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except OSError:  # it may not be listed
        return []


def _of_folder(folder: Path) -> str:
    names = [name for name in _names(folder) if not name.startswith(".")]
    if not names:
        return "and it is empty"
    return f"name one of its files, such as {str(folder / names[0])!r}"


def other_endings(folder: Path, names: list[str]) -> str:
    """Say what a folder holds instead of the files that were wanted, and how to name them."""
    endings = Counter(Path(name).suffix.lower() for name in names)
    endings.pop("", None)
    if not endings:
        return "check the path"
    ending, n = endings.most_common(1)[0]
    files = "file that ends" if n == 1 else "files that end"
    if ending == ".pdf":
        first = next(name for name in names if name.lower().endswith(ending))
        return (
            f"it holds {n:,} {files} in .pdf: a PDF is not text; convert it first: pdftotext "
            f"{shlex.quote(str(folder / first))}"
        )
    return f"it holds {n:,} {files} in {ending}: if that is text, name them: {folder}/*{ending}"
