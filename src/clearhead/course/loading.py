"""Loads a learner's file as a module."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any


def load_file(file: Path) -> dict[str, Any]:
    """Run the file and return its names. The code is the learner's: run it only in a separate
    process, or if the learner has asked for it."""
    module = ModuleType(f"learner_{file.stem}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module
    # As bytes: the compiler knows the byte order mark that editors on Windows write.
    code = compile(file.read_bytes(), str(file), "exec")
    exec(code, module.__dict__)
    return module.__dict__
