"""Replaces the spans of a text by numbers, and puts them back."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from unicodedata import category

from clearhead.localise.spans import (
    Span,
    SpanRules,
    find_spans,
    identities,
    pairs_of_tags,
    signs_of,
    with_number,
)

Pieces = tuple[str | int, ...]
"""Pieces of text, and the numbers of the spans between them."""
_NOT_TEXT = ("Cc", "Cs", "Cn")


@dataclass(frozen=True)
class MaskedText:
    """A text in which each span is a number: its place among the spans, from 0."""

    pieces: Pieces
    spans: tuple[Span, ...]
    rules: SpanRules
    before: str = ""
    """Spaces and line ends at the front: a translation has the same (gettext insists on it)."""
    behind: str = ""

    @property
    def has_text(self) -> bool:
        """Tell whether there is anything to translate."""
        return any(isinstance(piece, str) and piece.strip() for piece in self.pieces)

    @property
    def quotes(self) -> bool:
        """Tell whether a single apostrophe would switch placeholders off, so that each is written
        twice."""
        return self.rules.quotes and any(span.kind == "brace" for span in self.spans)

    @cached_property
    def in_order(self) -> tuple[int, ...]:
        """Return the spans that take unnumbered arguments, which may not change places unless they
        can all be numbered."""
        taking = tuple(number for number, span in enumerate(self.spans) if span.takes)
        spans = [self.spans[number] for number in taking]
        if self.rules.numbered and all(s.takes == 1 and s.kind == "printf" for s in spans):
            return ()
        return taking

    @cached_property
    def tags(self) -> dict[int, int]:
        """Return the closing tag of each opening tag."""
        return pairs_of_tags(self.spans)

    @cached_property
    def unused_signs(self) -> frozenset[str]:
        """Return characters that could begin a span and that do not occur in the text between the
        spans. A translation needs none of them either."""
        text = "".join(piece for piece in self.pieces if isinstance(piece, str))
        return frozenset(signs_of(self.rules)) - frozenset(text)

    def restore(self, pieces: Sequence[str | int]) -> str:
        """Put the spans back for their numbers in a translation's pieces. Arguments that have
        changed places are numbered. Control characters, and what is not a character, are left out
        unless the source has them."""
        numbers = [piece for piece in pieces if isinstance(piece, int)]
        taking = [number for number in numbers if self.spans[number].takes]
        names = [span.text for span in self.spans]
        if self.rules.numbered and taking != sorted(taking):
            for new_number, number in enumerate(sorted(taking), 1):
                names[number] = with_number(self.spans[number], new_number)
        if self.quotes:
            pieces = [
                piece if isinstance(piece, int) else piece.replace("'", "''") for piece in pieces
            ]
        kept_signs = {"\n", "\t"}.union(*(piece for piece in self.pieces if isinstance(piece, str)))
        parts = [
            names[piece]
            if isinstance(piece, int)
            else "".join(
                sign for sign in piece if sign in kept_signs or category(sign) not in _NOT_TEXT
            )
            for piece in pieces
        ]
        return self.before + "".join(parts).strip() + self.behind

    def is_kept_by(self, text: str) -> bool:
        """Tell whether a translation has the same spans, each as often. Text may touch an address,
        so that more would count as part of it; the address only has to occur."""
        if self.quotes and "'" in text.replace("''", ""):
            return False
        other = find_spans(text, self.rules)
        in_source, in_text = (
            Counter(name for name, span in zip(identities(spans), spans) if span.kind != "url")
            for spans in (self.spans, other)
        )
        addresses = [span.text for span in self.spans if span.kind == "url"]
        return in_source == in_text and all(address in text for address in addresses)


def mask(text: str, rules: SpanRules = SpanRules()) -> MaskedText:  # noqa: B008 (frozen)
    """Replace the spans of a text by numbers."""
    stripped = text.strip()
    start = text.index(stripped)
    spans = find_spans(stripped, rules)
    pieces = with_numbers(stripped, dict(enumerate(spans)))
    before, behind = text[:start], text[start + len(stripped) :]
    masked = MaskedText(pieces, tuple(spans), rules, before, behind)
    if masked.quotes:  # a model reads and writes plain apostrophes
        single = (p if isinstance(p, int) else p.replace("''", "'") for p in pieces)
        return replace(masked, pieces=tuple(single))
    return masked


def with_numbers(text: str, numbered: dict[int, Span]) -> Pieces:
    """Return the text with these spans as their numbers. No piece of text is empty."""
    pieces: list[str | int] = []
    end = 0
    for number, span in sorted(numbered.items(), key=lambda item: item[1].start):
        pieces += [text[end : span.start], number]
        end = span.stop
    return tuple(piece for piece in [*pieces, text[end:]] if piece != "")


def mask_pair(
    source: str,
    target: str,
    most: int,
    rules: SpanRules = SpanRules(),  # noqa: B008 (frozen)
) -> tuple[Pieces, Pieces]:
    """Mask a source and its translation: at most `most` spans that both have become numbers. A span
    that only one of them has stays text, since a number that is not copied would teach the model to
    drop numbers."""
    spans, others = find_spans(source, rules), find_spans(target, rules)
    places: dict[str, list[Span]] = {}
    for name, span in zip(identities(others), others):
        places.setdefault(name, []).append(span)
    pairs = [
        (span, places[name].pop(0))
        for name, span in zip(identities(spans), spans)
        if places.get(name)
    ][:most]
    return (
        with_numbers(source, {number: own for number, (own, _) in enumerate(pairs)}),
        with_numbers(target, {number: other for number, (_, other) in enumerate(pairs)}),
    )


def masked_like(source: MaskedText, target: str, most: int) -> Pieces:
    """Mask a given translation of a text: spans that it shares with the text get the text's
    numbers, if these are below `most`. Any other span stays text."""
    numbers: dict[str, list[int]] = {}
    for number, name in enumerate(identities(source.spans)[:most]):
        numbers.setdefault(name, []).append(number)
    spans = find_spans(target, source.rules)
    named = zip(identities(spans), spans)
    return with_numbers(
        target, {numbers[name].pop(0): span for name, span in named if numbers.get(name)}
    )
