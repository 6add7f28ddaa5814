"""Reads catalogues of translations (PO and XLIFF) with translate-toolkit (the extra `localise`),
fills the entries that have no translation, and writes the whole file. Everything else in the file
stays unchanged."""

import gettext
import hashlib
import io
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

from clearhead.errors import ClearheadError, DataError, method
from clearhead.files import sha256_of, write_whole
from clearhead.localise.language_codes import is_same_language
from clearhead.localise.po_text import PoText, read_po_text
from clearhead.localise.spans import SpanRules, find_spans, identities, rules_of
from clearhead.localise.xliff_inline import (
    InlineElements,
    is_inside_protected,
    put_behind_source,
    xml_as_before,
)

CatalogueKind = Literal["po", "xliff", "qt"]
NOTE = "clearhead: "
"""The beginning of the comments on filled entries."""
ENDINGS = (".po", ".xlf", ".xliff")
"""The endings of the names of catalogues."""
HEAD = 1 << 16
"""The number of bytes in which a catalogue shows its format: translators keep glossaries in its
first comment."""
MAX_BYTES = 1 << 28
_COMMENTS = re.compile(rb"(?:\s*+#[^\n]*+\n)*\s*+")
_PO_ENTRY = re.compile(rb'(?:domain|msgctxt|msgid)\s*"')
SINGLE_FORM = 5
"""gettext's own limit (OFTEN in msgl-check.c): a form that is used for at most this many of the
numbers up to 1000 may leave the number out."""
_OTHERS = {
    ".csv": ("a table", "give a catalogue (.po, .xlf, .xliff)"),
    ".tsv": ("a table", "give a catalogue (.po, .xlf, .xliff)"),
    ".json": ("JSON", "convert it to PO: json2po -t SOURCE{ending} {path} {made}"),
    ".mo": ("a compiled catalogue", "convert it to PO: msgunfmt {path} -o {made}"),
    ".properties": (
        "a Java properties file",
        "convert it to PO: prop2po -t SOURCE{ending} {path} {made}",
    ),
    ".strings": ("Apple's strings", "convert it to PO: prop2po -t SOURCE{ending} {path} {made}"),
    ".ts": ("a catalogue of Qt Linguist", "convert it to PO: ts2po {path} {made}"),
    ".yaml": ("YAML", "convert it to PO: yaml2po -t SOURCE{ending} {path} {made}"),
    ".yml": ("YAML", "convert it to PO: yaml2po -t SOURCE{ending} {path} {made}"),
    ".tmx": ("a translation memory", "give a catalogue, and this file as its memory"),
    ".txt": ("plain text", f"its lines are translated by {method('translate')}"),
}
"""What other files are, by the endings of their names, and what to do with each."""


def kind_of_catalogue(head: bytes) -> CatalogueKind | None:
    """Return the format of a file that begins with these bytes, if it is a catalogue of
    translations."""
    head = head.removeprefix(b"\xef\xbb\xbf")
    comments = _COMMENTS.match(head)
    if comments and _PO_ENTRY.match(head, comments.end()):
        return "po"
    if b"<xliff" in head.lower():
        return "xliff"
    return "qt" if re.search(rb"<!doctype ts>|<ts\s", head.lower()) else None


class TranslatedPair(NamedTuple):
    """A text with its translation by a person."""

    source: str
    target: str


class TranslatedForms(NamedTuple):
    """All forms of an entry with their translations by a person."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]


@dataclass(frozen=True)
class CatalogueEntry:
    """One entry of a catalogue. A PO entry with plural forms has several texts."""

    unit: Any
    """The unit of translate-toolkit."""
    sources: tuple[str, ...]
    """The text that each form is translated from."""
    rules: SpanRules
    elements: "InlineElements | None" = None
    """The XLIFF elements inside the text: the source has short tags for them."""

    @property
    def is_open(self) -> bool:
        """Tell whether the entry needs a translation: it has none, not even a draft."""
        return not any(self._targets) and any(source.strip() for source in self.sources)

    @property
    def finished(self) -> TranslatedForms | None:
        """Return the translation that a person has approved, if there is one."""
        if _is_draft(self.unit) or len(self._targets) != len(self.sources):
            return None
        if self.elements is not None:  # its tags are those of this entry
            return None
        return TranslatedForms(self.sources, tuple(self._targets))

    @property
    def translated(self) -> list[TranslatedPair]:
        """Return the pairs that a person has approved."""
        finished = self.finished
        pairs = zip(*finished) if finished is not None else ()
        return [TranslatedPair(*pair) for pair in pairs if all(pair)]

    @property
    def can_be_read(self) -> bool:
        """Tell whether the rules for placeholders find all of them in this entry."""
        return not any(self.rules.misread(source) for source in self.sources)

    @property
    def _targets(self) -> list[str]:
        if self.elements is not None:
            return [self.elements.target_of(self.unit)]
        target = self.unit.target
        return [str(form) for form in getattr(target, "strings", [target]) if form]

    def can_hold(self, text: str) -> bool:
        """Tell whether a text has every element of the source, properly nested."""
        return self.elements is None or self.elements.tagged.parts_of(text) is not None

    def fill(self, texts: list[str], note: str) -> None:
        """Write a translation that a person has to check, with a note on its origin."""
        is_new = getattr(self.unit, "target_dom", None) is None
        self.unit.target = texts if len(texts) > 1 or self.unit.hasplural() else texts[0]
        if self.elements is not None:
            self.elements.write(self.unit.target_dom, texts[0])
        if is_new and hasattr(self.unit, "target_dom"):
            put_behind_source(self.unit.target_dom)
        self.unit.markfuzzy()
        if type(self.unit).__name__ == "Xliff2Unit":
            # The toolkit writes notes into the segment, where XLIFF 2.0 allows none.
            value = re.sub(r"[^\w.]+", "-", note)
            self.unit.xmlelement.set("subState", NOTE.replace(" ", "") + value)
        else:
            self.unit.addnote(NOTE + note, origin="translator")


class Catalogue:
    """A PO or XLIFF file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            if path.stat().st_size > MAX_BYTES:
                raise DataError(f"{path} has more than {MAX_BYTES:,} bytes; split it")
            content = path.read_bytes()
            self._read = hashlib.sha256(content).hexdigest()
        except FileNotFoundError:
            raise DataError(f"there is no file {path}; check the path") from None
        except OSError as error:
            raise DataError(f"{path} cannot be read ({error.strerror}); check the path") from None
        self.kind = kind_of_catalogue(content[:HEAD])
        if self.kind not in ("po", "xliff"):
            raise DataError(f"{path} is {_what(path)}, neither PO nor XLIFF; {_remedy(path)}")
        self._po: PoText | None = None
        if self.kind == "po":
            self._po = read_po_text(path, content)
            content = self._po.text.encode("utf-8")
        self._xml = None if self._po is not None else content
        self.store = _parse(path, self.kind, content)
        if self._po is not None:
            self._po.check_entries(len(self.store.units))
        self.stated_language: str | None = self.store.gettargetlanguage() or None
        """The language of the translations, as the file itself says; None: it does not."""
        self.language: str = self.stated_language or path.stem
        self.forms = _plural_forms(self.store) if self.kind == "po" else None
        self.left_out = 0
        """Entries that cannot be filled: their plural forms are not known."""
        self.entries = [entry for unit in self.store.units if (entry := self._entry(unit))]

    def _entry(self, unit: Any) -> CatalogueEntry | None:
        if unit.isheader() or unit.isobsolete() or not unit.istranslatable():
            return None
        if self.kind == "xliff" and (
            unit.source_dom is None or is_inside_protected(unit.source_dom)
        ):
            return None
        sources = tuple(str(form) for form in getattr(unit.source, "strings", [unit.source or ""]))
        if self.kind == "xliff":
            if len(unit.source_dom):
                elements = InlineElements(unit.source_dom)
                return CatalogueEntry(unit, (elements.tagged.text,), SpanRules(), elements)
            return CatalogueEntry(unit, sources, SpanRules())
        if len(sources) > 1 and self.forms is None:
            self.left_out += 1
            return None
        flags = [flag.strip() for line in unit.typecomments for flag in line[2:].split(",")]
        rules = rules_of(flags)
        if len(sources) > 1 and self.forms is not None:
            # gettext compares every form with msgid_plural, and may only miss arguments there.
            alike = not (_arguments(sources[0], rules) - _arguments(sources[1], rules))
            sources = tuple(sources[is_plural or not alike] for is_plural in self.forms)
        return CatalogueEntry(unit, sources, rules)

    def finished(self) -> Iterator[TranslatedForms]:
        """Return what people have translated, with all plural forms of an entry."""
        for entry in self.entries:
            if (finished := entry.finished) is not None and all(finished.targets):
                yield finished

    def has_changed(self) -> bool:
        """Tell whether somebody has changed the file since it was read."""
        return not self.path.exists() or sha256_of(self.path) != self._read

    def write(self, path: Path) -> None:
        """Write the catalogue, whole or not at all."""
        path = path.resolve()  # a link stays a link
        content = self._as_bytes()
        try:
            mode = path.stat().st_mode if path.exists() else None
            write_whole(path, content)
            if mode is not None:
                path.chmod(mode)
        except OSError as error:
            raise DataError(
                f"{path} cannot be written ({error.strerror}); name another file"
            ) from None

    def _as_bytes(self) -> bytes:
        if self._po is not None:
            out = io.BytesIO()
            self.store.serialize(out)
            return self._po.as_bytes(out.getvalue())
        assert self._xml is not None
        return xml_as_before(self.store.document, self._xml)


def check_can_write(path: Path) -> None:
    """Raises if a file could not be written, before hours of work."""
    path = path.resolve()
    if path.is_dir():
        raise DataError(f"{path} is a folder; name a file")
    if not path.parent.is_dir():
        raise DataError(f"there is no folder {path.parent}; make it, or name another file")
    if not os.access(path.parent, os.W_OK):
        raise DataError(f"the folder {path.parent} cannot be written to; name another file")


def read_pairs(path: Path) -> Iterator[TranslatedPair]:
    """Return the pairs that people have translated in a catalogue, in its order."""
    for entry in Catalogue(path).entries:
        yield from entry.translated


def read_all_pairs(paths: Sequence[Path]) -> Iterator[TranslatedPair]:
    """Return the pairs of several catalogues, from which a model is to learn. Raises if they are
    translations into different languages, or if there are no pairs."""
    first: Catalogue | None = None
    is_empty = True
    for path in paths:
        catalogue = Catalogue(path)
        language = catalogue.stated_language
        if first is None or first.stated_language is None:
            first = catalogue
        elif language is not None and not is_same_language(first.stated_language, language):
            raise DataError(
                f"{first.path} translates into {first.stated_language!r} and {path} into "
                f"{language!r}, but a model learns one target language; give the catalogues of "
                "one language"
            )
        for entry in catalogue.entries:
            for pair in entry.translated:
                is_empty = False
                yield pair
    if is_empty:
        raise DataError(
            f"{', '.join(map(str, paths))}: no entry has a finished translation to learn from "
            "(drafts, which are marked as fuzzy, do not count); give catalogues that people have "
            "translated"
        )


def _what(path: Path) -> str:
    return _OTHERS.get(path.suffix.lower(), ("no catalogue",))[0]


def _remedy(path: Path) -> str:
    _, remedy = _OTHERS.get(path.suffix.lower(), ("", "give a catalogue (.po, .xlf, .xliff)"))
    here, made = (shlex.quote(str(file)) for file in (path, path.with_suffix(".po")))
    written = remedy.format(path=here, made=made, ending=path.suffix)
    explained = " (SOURCE is the file of the source language)" if "SOURCE" in remedy else ""
    return written + explained


def check_can_localise() -> None:
    """Raises if the optional package is not installed."""
    if find_spec("translate") is None or find_spec("lxml") is None:
        raise ClearheadError(
            "catalogues are read by the package translate-toolkit, which is not installed; get it "
            "with: pip install 'clearhead[localise]'"
        )


def _parse(path: Path, kind: CatalogueKind, content: bytes) -> Any:
    check_can_localise()
    from translate.storage import pypo, xliff, xliff2

    reader = pypo.pofile
    if kind == "xliff":
        is_first = b"urn:oasis:names:tc:xliff:document:2" not in content
        reader = xliff.Xliff1File if is_first else xliff2.Xliff2File
    try:
        store = reader(io.BytesIO(content))
    except Exception as error:  # the toolkit raises whatever its parsers raise
        raise DataError(_unreadable(path, kind, str(error))) from None
    return store


def _unreadable(path: Path, kind: CatalogueKind, error: str) -> str:
    """Say what is wrong with a catalogue that its parser refuses, and what to do."""
    lines = re.findall(r"\bline (\d+)", error)
    at = f", line {lines[-1]}" if lines else ""
    if "end-of-line within string" in error:
        return (
            f'{path}{at}: a text in quotes does not end; close it with " (msgfmt -c finds others)'
        )
    cut_off = re.search(r"Premature end|end of file|no element found", error, re.IGNORECASE)
    if kind == "xliff" and cut_off:
        return f"{path} ends in the middle{at}: the file is cut off; get it again"
    remedy = "msgfmt -c names each mistake" if kind == "po" else "xmllint names each mistake"
    return f"{path} cannot be read as {kind.upper()} ({error}); {remedy}"


def _is_draft(unit: Any) -> bool:
    """Tell whether somebody still has to check the translation. Few programs that write XLIFF 1.2
    set `approved`, without which the toolkit takes all translations for drafts; the `state` decides
    instead."""
    if type(unit).__name__ != "Xliff1Unit":
        return unit.isfuzzy()
    state = unit.target_dom.get("state", "") if unit.target_dom is not None else "new"
    return state.startswith(("new", "needs-"))


def _arguments(text: str, rules: SpanRules) -> Counter[str]:
    spans = find_spans(text, rules)
    named = zip(identities(spans), spans)
    return Counter(name for name, span in named if span.kind == "printf")


def _plural_forms(store: Any) -> tuple[bool, ...] | None:
    """Tell for each plural form of a PO file whether it is translated from msgid_plural. It is,
    unless the form is used only for 1 and few other numbers. None: the header does not say."""
    n_forms, expression = store.getheaderplural()
    if n_forms is None or expression is None:
        return None
    try:
        form_of = gettext.c2py(expression)
        taken = [form_of(n) for n in range(1001)]
        forms = range(int(n_forms))
    except (ValueError, ZeroDivisionError, RecursionError):
        return None
    if not set(taken) <= set(forms):
        return None
    return tuple(form != taken[1] or taken.count(form) > SINGLE_FORM for form in forms)
