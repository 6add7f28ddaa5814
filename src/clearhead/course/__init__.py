"""The exercises of the course: files with blanks, which are checked by properties. `clearhead
learn` makes them, shows the next one and checks it."""

from typing import Any


class BlankError(Exception):
    """Raised by a blank that is still in the learner's file."""


def blank() -> Any:
    """Stands in an exercise in place of the learner's code."""
    raise BlankError


__all__ = ["BlankError", "blank"]
