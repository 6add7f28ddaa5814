"""Terms that a translation has to use. Words are compared whole and without regard to case; in
scripts without spaces, such as Chinese, characters are compared."""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias
from unicodedata import category

from clearhead.config.checks import as_path
from clearhead.errors import ConfigError, DataError
from clearhead.localise.spans import SpanRules, find_spans

MAX_BYTES = 1 << 26
MAX_LENGTH = 200
"""Characters of the longest term."""
MAX_ENDING = 3
"""Letters that a term may have more at its end, where it is inflected."""
HEADERS = (("source", "target"), ("source term", "target term"), ("term", "translation"))
UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
"""Scripts without spaces between words: Thai, Lao, Burmese, Khmer, kana and Chinese."""
_UNIT = re.compile(rf"[^\W{UNSPACED}]+|\s+|.", re.S)
_SPACED = re.compile(rf"[^\W{UNSPACED}]")


class Term(NamedTuple):
    """A term of the source with its translation."""

    source: str
    target: str


class TermUse(NamedTuple):
    """A term in a text, and whether its translation uses it."""

    term: Term
    is_used: bool
    """True if the translation has the target's word for it."""


PiecesWithTerms: TypeAlias = tuple[str | int | Term, ...]
"""Text, numbers of spans, and terms with their translations."""


class Glossary(Mapping[str, str]):
    """Terms, and their translations."""

    def __init__(self, terms: Mapping[str, str]) -> None:
        self.terms = {source.strip(): target.strip() for source, target in terms.items()}
        self._by_key = {_keys(source): target for source, target in self.terms.items()}
        lengths: dict[str, set[int]] = {}
        for key in self._by_key:
            lengths.setdefault(key[0], set()).add(len(key))
        self._lengths = {
            first: sorted(key_lengths, reverse=True) for first, key_lengths in lengths.items()
        }

    def __getitem__(self, term: str) -> str:
        return self.terms[term]

    def __iter__(self) -> Iterator[str]:
        return iter(self.terms)

    def __len__(self) -> int:
        return len(self.terms)

    def with_terms(self, pieces: Sequence[str | int]) -> PiecesWithTerms:
        """Split a text into pieces, with terms as pieces of their own: from the left, the longest
        term first. The space before a term belongs to it, as in most tokenizers."""
        divided: list[str | int | Term] = []
        for piece in pieces:
            if isinstance(piece, int):
                divided.append(piece)
                continue
            end = 0
            for start, stop, target in self._matches(piece):
                is_behind_blank = piece[start - 1 : start] == " " and start > end
                begin = start - is_behind_blank
                if begin > end:
                    divided.append(piece[end:begin])
                divided.append(Term(piece[begin:stop], with_blank(target)))
                end = stop
            if end < len(piece):
                divided.append(piece[end:])
        return tuple(divided)

    def terms_in(self, pieces: Sequence[str | int]) -> tuple[Term, ...]:
        """Return the terms of a text, each once."""
        terms: dict[str, Term] = {}
        for text in (piece for piece in pieces if isinstance(piece, str)):
            for start, stop, target in self._matches(text):
                terms.setdefault(target.casefold(), Term(text[start:stop], target))
        return tuple(terms.values())

    def _matches(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yield the start, the stop and the translation of each term."""
        units = list(_UNIT.finditer(text))
        keys = tuple(_key(unit[0]) for unit in units)
        start = 0
        while start < len(keys):
            for length in self._lengths.get(keys[start], ()):
                target = self._by_key.get(keys[start : start + length])
                if target is not None and start + length <= len(keys):
                    stop = units[start + length - 1].end()
                    # which belong to the letter before them
                    if category(text[stop : stop + 1] or " ")[0] != "M":
                        yield units[start].start(), stop, target
                        start += length - 1
                        break
            start += 1


def is_used(target: str, text: str) -> bool:
    """Tell whether a text contains the term. The last word may have an ending of a few letters."""
    target_keys, keys = _keys(target), _keys(text)
    *first, last = target_keys
    for start in range(len(keys) - len(target_keys) + 1):
        behind = keys[start + len(first)]
        if (
            list(keys[start : start + len(first)]) == first
            and behind.startswith(last)
            and len(behind) <= len(last) + MAX_ENDING
        ):
            return True
    return False


def with_blank(target: str) -> str:
    """Return a term as it occurs inside a text: after a space, if its script has spaces."""
    return f" {target}" if _SPACED.match(target) else target


def terms_of_both(glossary: Glossary, pieces: Sequence[str | int], target: str) -> PiecesWithTerms:
    """Return the pieces of a source. Only terms whose translation is in the target are marked."""
    marked = glossary.with_terms(pieces)
    terms = {piece for piece in marked if isinstance(piece, Term)}
    used = {term for term in terms if is_used(term.target.strip(), target)}
    plain: list[str | int | Term] = []
    for piece in marked:
        text = piece.source if isinstance(piece, Term) and piece not in used else piece
        last = plain[-1] if plain else None
        if isinstance(text, str) and isinstance(last, str):  # words of one piece belong together
            plain[-1] = last + text
        else:
            plain.append(text)
    return tuple(plain)


def read_glossary(path: Path) -> Glossary:
    """Read a glossary from a CSV file in UTF-8, with a term and its translation in each line."""
    if path.exists() and not path.is_file():
        raise DataError(f"{path} is not a file; give a CSV file of terms")
    try:
        if path.stat().st_size > MAX_BYTES:
            raise DataError(f"{path} has more than {MAX_BYTES:,} bytes; give fewer terms")
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); check the path") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: byte {error.start + 1} is not UTF-8; convert the file") from None
    terms: dict[str, str] = {}
    lines: dict[tuple[str, ...], tuple[int, str]] = {}
    reader = csv.reader(text.splitlines(keepends=True), strict=True)
    try:
        for number, row in enumerate(reader, 1):
            if not any(field.strip() for field in row):
                continue
            if number == 1 and tuple(field.strip().lower() for field in row) in HEADERS:
                continue
            if len(row) != 2:
                raise DataError(f"{path}: row {number} {_wrong_columns(row)}")
            source, target = (field.strip() for field in row)
            if wrong := wrong_in(source, target):
                raise DataError(
                    f"{path}, row {number}: the {wrong.what} {wrong.rule}; {wrong.remedy}"
                )
            first, before = lines.setdefault(_keys(source), (number, target))
            if before != target:
                what = f"{path}, row {number}: {source!r} has another translation in row {first}"
                raise DataError(f"{what}; terms match in any case, so keep one of them")
            terms[source] = target
    except csv.Error as error:
        raise DataError(f"{path} is not CSV ({error}); check its quotes") from None
    if not terms:
        raise DataError(f"{path} has no terms; write a term and its translation in each line")
    return Glossary(terms)


def _wrong_columns(row: Sequence[str]) -> str:
    """Say what is wrong with a row that is not a term and its translation."""
    if len(row) > 2:
        return (
            f"has {len(row)} columns; write a term and its translation, and put a text with a "
            'comma in quotes: "so, it is"'
        )
    for separator, name in {"\t": "a tab", ";": "a semicolon", "|": "a bar"}.items():
        if separator in row[0]:
            return f"is separated by {name}; use a comma: term,translation"
    return "has no comma; write a term and its translation, separated by a comma"


def as_glossary(glossary: Mapping[str, str] | str | Path | None) -> Glossary | None:
    """Make a glossary from a dictionary or a CSV file; None if there are no terms."""
    if isinstance(glossary, Glossary):
        return glossary
    if isinstance(glossary, str | Path):
        return read_glossary(as_path("glossary", glossary))
    targets: dict[tuple[str, ...], str] = {}
    for source, target in (glossary or {}).items():
        if not isinstance(source, str) or not isinstance(target, str):
            rule = "is not a term with its translation"
            raise ConfigError("glossary", {source: target}, rule, "give two strings")
        if wrong := wrong_in(source, target):
            raise ConfigError("glossary", {source: target}, f"has a {wrong}", wrong.remedy)
        if targets.setdefault(_keys(source.strip()), target) != target:
            rule = "has another translation in another case, and terms match in any case"
            raise ConfigError("glossary", {source: target}, rule, "keep one of them")
    return Glossary(glossary) if glossary else None


class WrongTerm(NamedTuple):
    """What is wrong with a term."""

    what: str
    """The term, or its translation."""
    rule: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what} that {self.rule}"


def wrong_in(source: str, target: str) -> WrongTerm | None:
    """Say what is wrong with a term, and what to do; None if nothing is wrong."""
    for what, text in (("term", source), ("translation", target)):
        if not text.strip():
            return WrongTerm(what, "is empty", "write it, or leave the term out")
        if len(text) > MAX_LENGTH:
            rule = f"has {len(text)} characters"
            return WrongTerm(what, rule, f"write at most {MAX_LENGTH}")
        if any(category(sign) in ("Cc", "Cs", "Cn") for sign in text):
            return WrongTerm(what, "has control characters", "remove them")
        if find_spans(text, SpanRules()):
            rule = "has a placeholder, a tag or an address"
            return WrongTerm(what, rule, "leave it out: those are kept as they are")
    return None


def _keys(text: str) -> tuple[str, ...]:
    """Return the words of a text, and the text between them, in the form in which they are
    compared."""
    return tuple(_key(unit) for unit in _UNIT.findall(text))


def _key(unit: str) -> str:
    return " " if unit.isspace() else unit.casefold()
