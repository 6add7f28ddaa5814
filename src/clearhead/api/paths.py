"""Paths as users give them, and where folders are unless users say otherwise."""

from pathlib import Path

from clearhead.config.checks import user_path
from clearhead.errors import InputError

PREPARED = Path("prepared")
"""Holds the token files of each recipe, by its name."""
RUNS = Path("runs")
"""Holds the run of each recipe, by its name."""
STUDIES = Path("studies")
"""Holds the runs and results of each study, by its name."""


def as_path(name: str, given: str | Path | None, default: Path | None = None) -> Path:
    """A path of the user's, who may give it as a string."""
    if given is None and default is not None:
        return default
    if not isinstance(given, str | Path) or not str(given):
        raise InputError(f"{name}={given!r} is not a path; give a string or a pathlib.Path")
    if "\0" in str(given):
        raise InputError(f"{name}={str(given)!r} holds a zero byte; check the path")
    return user_path(given)
