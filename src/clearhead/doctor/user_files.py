"""Runs a Python file that belongs to the user."""

import importlib.util
import sys
from pathlib import Path
from traceback import walk_tb
from types import FrameType, ModuleType
from typing import Any

from .errors import DoctorError


class FileError(DoctorError):
    """Raised if a Python file of the user cannot be imported. `line` (empty if unknown) and
    `reason` say why."""

    def __init__(self, file: Path, line: str, reason: str) -> None:
        super().__init__(f"{file}{line and f', line {line}'} cannot be imported: {reason}")
        self.file, self.line, self.reason = file, line, reason

    def __reduce__(self) -> tuple[Any, ...]:
        return FileError, (self.file, self.line, self.reason)


def run_file(file: Path) -> ModuleType:
    """Run a Python file of the user, and return it as a module."""
    if not file.is_file():
        raise DoctorError(f"there is no file {str(file)!r}; check the path")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its neighbours can be imported, as if it were run, and its classes can be found by name.
    if str(file.parent.resolve()) not in sys.path:
        sys.path.insert(0, str(file.parent.resolve()))
    sys.modules[file.stem] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise FileError(file, line_in(file, error), first_line(error)) from error
    return module


def line_in(file: Path, error: BaseException) -> str:
    """Return the last line of this file that an error passed through; empty if it passed none. A
    syntax error may be in a file that this one imports: its text then says where."""
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return str(error.lineno)
    lines = [line for frame, line in walk_tb(error.__traceback__) if _is_of(frame, file)]
    return str(lines[-1]) if lines else ""


def _is_of(frame: FrameType, file: Path) -> bool:
    return Path(frame.f_code.co_filename).resolve() == file.resolve()


def first_line(error: BaseException) -> str:
    """Return the message of an error, without its details."""
    text = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
