"""Handles elements inside the texts of XLIFF, such as `<g>` and `<ph>`: short tags replace them in
a text that is translated, and the elements are put back into its translation."""

import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from clearhead.localise.inline import Inline, TaggedText

AROUND_TEXT = frozenset({"g", "mrk", "pc"})
"""Elements whose text is translated. The text of other elements, such as `<ph>`, is code, as is
everything inside it."""
BEGIN = {"bpt": "ept", "bx": "ex", "sc": "ec", "sm": "em"}
"""Elements that begin a part of the text, and those that end it. The end names its beginning: by
`rid` or the same `id` in XLIFF 1.2, and by `startRef` in 2.0."""


class InlineElements:
    """The elements of one text."""

    def __init__(self, source: Any) -> None:
        self._elements: list[Any] = []
        self._ends: dict[int, Any] = {}
        parts = list(self._parts(source))
        self.tagged = TaggedText(self._paired(parts))
        if self.tagged.parts_of(self.tagged.text) is None:  # pairs that cross: each end on its own
            self._ends.clear()
            self.tagged = TaggedText(parts)

    def _parts(self, element: Any) -> Iterator[str | Inline]:
        """Yield the texts of an element, and the elements between them."""
        if element.text:
            yield element.text
        for child in element:
            number = len(self._elements)
            self._elements.append(child)
            if _name(child) in AROUND_TEXT and not _is_protected(child):
                yield Inline(number, "opens")
                yield from self._parts(child)
                yield Inline(number, "closes")
            else:
                yield Inline(number, "alone")
            if child.tail:
                yield child.tail

    def _paired(self, parts: list[str | Inline]) -> list[str | Inline]:
        """Return the parts, in which `<bpt>` opens what its `<ept>` closes."""
        begun: dict[tuple[str, str], int] = {}
        paired: list[str | Inline] = []
        for part in parts:
            new = part
            if isinstance(part, Inline) and part.role == "alone":
                element = self._elements[part.number]
                name, attributes = _name(element), element.attrib
                if name in BEGIN:
                    key = (BEGIN[name], attributes.get("rid") or attributes.get("id", ""))
                    if begun.setdefault(key, part.number) == part.number:
                        new = Inline(part.number, "opens")
                elif name in BEGIN.values():
                    begun_by = (
                        attributes.get("startRef")
                        or attributes.get("rid")
                        or attributes.get("id", "")
                    )
                    key = (name, begun_by)
                    if (start := begun.pop(key, None)) is not None:
                        self._ends[start] = element
                        new = Inline(start, "closes")
            paired.append(new)
        # One without an end stands alone.
        return [
            Inline(part.number, "alone")
            if isinstance(part, Inline) and part.number in begun.values()
            else part
            for part in paired
        ]

    def write(self, target: Any, text: str) -> None:
        """Write a translation with these elements into an element."""
        parts = self.tagged.parts_of(text)
        assert parts is not None
        for child in list(target):
            target.remove(child)
        target.text = None
        path = [target]
        for part in parts:
            here = path[-1]
            if isinstance(part, str):
                if len(here):
                    here[-1].tail = (here[-1].tail or "") + part
                else:
                    here.text = (here.text or "") + part
            elif part.role == "closes" and part.number not in self._ends:
                path.pop()
            else:
                own = self._elements if part.role != "closes" else self._ends
                copy = deepcopy(own[part.number])
                copy.tail = None
                if part.role == "opens" and part.number not in self._ends:
                    for child in list(copy):
                        copy.remove(child)
                    copy.text = None
                    path.append(copy)
                here.append(copy)

    @staticmethod
    def target_of(unit: Any) -> str:
        """Return the translation of a unit: all its text, or a sign that stands for elements
        alone."""
        target = unit.target_dom
        if target is None:
            return ""
        return "".join(target.itertext()) or "\ufffc" * bool(len(target))


def xml_as_before(document: Any, old: bytes) -> bytes:
    """Return the bytes of a changed document, with the declaration, the encoding and the line ends
    of the old one. The toolkit would indent the whole document anew, the texts included."""
    from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]

    encoding = document.docinfo.encoding or "UTF-8"
    content = etree.tostring(document, encoding=encoding, xml_declaration=False) + b"\n"
    declaration = re.match(rb"(?:\xef\xbb\xbf)?<\?xml[^>]*\?>", old)
    if declaration is not None:
        content = declaration[0] + b"\n" + content
    is_windows = old.count(b"\n") == old.count(b"\r\n") > 0
    return content.replace(b"\n", b"\r\n") if is_windows else content


def is_inside_protected(source: Any) -> bool:
    """Tell whether an element around a text says that it is not to be translated: the nearest one
    that says anything."""
    words = (element.get("translate") for element in source.iterancestors())
    return next((word for word in words if word), "yes") == "no"


def put_behind_source(target: Any) -> None:
    """Move a new target to the only place where XLIFF allows it, with the white space that the
    elements around it have."""
    parent = target.getparent()
    *_, last = (child for child in parent if _name(child) in ("source", "seg-source"))
    parent.remove(target)
    target.tail = last.tail
    if not (parent.text or "").strip():
        last.tail = parent.text
    parent.insert(parent.index(last) + 1, target)


def _is_protected(element: Any) -> bool:
    """Tell whether an element says that its text is not to be translated."""
    return element.get("translate") == "no" or element.get("mtype") == "protected"


def _name(element: Any) -> str:
    """Return the name without its namespace; comments have none."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""
