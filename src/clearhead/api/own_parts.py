"""Parts of the user's own as they are given: classes, or FILE.py:NAME."""

import importlib.util
import sys
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from clearhead.errors import ClearheadError, InputError
from clearhead.models.own_parts import OwnParts
from clearhead.parts.attention import MultiHeadAttention

PartGiven = type[nn.Module] | str | None
"""A class, or FILE.py:NAME, whose file is run; None: the part that the configuration names."""
ROLES = tuple(field.name for field in fields(OwnParts))


def own_parts(**given: Any) -> OwnParts:
    """Checked, by role. A name is looked up in its file, which is run for it."""
    found: dict[str, Any] = {}
    for role, part in given.items():
        if part is None:
            continue
        part = _by_name(role, part) if isinstance(part, str) else part
        base = MultiHeadAttention if role == "attention" else nn.Module
        if not (isinstance(part, type) and issubclass(part, base)):
            raise InputError(
                f"{role}={part!r} is not a subclass of {base.__module__}.{base.__qualname__}; "
                "give the class itself, or FILE.py:NAME"
            )
        found[role] = part
    return OwnParts(**found)


def _by_name(role: str, name: str) -> Any:
    file, colon, symbol = name.rpartition(":")
    if not colon or not file.endswith(".py"):
        raise InputError(f"{role}={name!r} is not FILE.py:NAME; try {role}=my_parts.py:MyPart")
    return from_file(Path(file), symbol)


def from_file(file: Path, symbol: str) -> Any:
    """What a Python file calls by this name. The file is run: only name one that you trust."""
    found = getattr(run_file(file), symbol, None)
    if found is None:
        raise ClearheadError(f"{file} has no {symbol!r}; check the name")
    return found


class FileError(ClearheadError):
    """A Python file of the user's that cannot be imported; `line` (empty if unknown) and `reason`
    say why."""

    def __init__(self, file: Path, line: str, reason: str) -> None:
        super().__init__(f"{file}{line and f', line {line}'} cannot be imported: {reason}")
        self.file, self.line, self.reason = file, line, reason

    def __reduce__(self) -> tuple[Any, ...]:
        return FileError, (self.file, self.line, self.reason)


def run_file(file: Path) -> ModuleType:
    """A Python file of the user's as a module."""
    if not file.is_file():
        raise ClearheadError(f"there is no file {str(file)!r}; check the path")
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
        line = ""
        # A syntax error may be in a file that this one imports: its text then says where.
        if isinstance(error, SyntaxError) and error.filename == str(file):
            line = str(error.lineno)
        raise FileError(file, line, first_line(error)) from error
    return module


def first_line(error: BaseException) -> str:
    """What an error says, without its details."""
    text = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
