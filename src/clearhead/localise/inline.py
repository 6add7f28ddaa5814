"""Turns elements inside a text, such as those of HTML and XLIFF, into short and simple tags: spans
that a translation keeps like any other."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Inline:
    """An element inside a text, or one end of it."""

    number: int
    """The number of the element, the same for both of its ends."""
    role: Literal["opens", "closes", "alone"]


InlineParts = Sequence[str | Inline]


class TaggedText:
    """A text in which `<x0>`, `</x0>` and `<x1/>` stand for its elements."""

    def __init__(self, parts: InlineParts) -> None:
        self.parts = parts
        words = "".join(part for part in parts if isinstance(part, str)).lower()
        prefix = "x"
        while f"<{prefix}" in words or f"</{prefix}" in words:
            prefix += "x"
        self._tags = {_written(part, prefix): part for part in parts if not isinstance(part, str)}
        self.text = "".join(
            part if isinstance(part, str) else _written(part, prefix) for part in parts
        )
        self._form = re.compile(rf"(</?{prefix}\d+/?>)")

    def parts_of(self, translation: str) -> list[str | Inline] | None:
        """Return the parts of a translation; None unless it has each element once, and properly
        nested."""
        pieces = self._form.split(translation)
        if sorted(pieces[1::2]) != sorted(self._tags):
            return None
        parts: list[str | Inline] = []
        opened: list[int] = []
        for index, piece in enumerate(pieces):
            part = self._tags[piece] if index % 2 else piece
            if isinstance(part, Inline):
                if part.role == "opens":
                    opened.append(part.number)
                elif part.role == "closes" and (not opened or opened.pop() != part.number):
                    return None
            if part != "":
                parts.append(part)
        return parts


def _written(part: Inline, prefix: str) -> str:
    before, behind = ("/" * (part.role == role) for role in ("closes", "alone"))
    return f"<{before}{prefix}{part.number}{behind}>"
