"""Translates the texts in HTML and keeps its tags.

Each tag, comment and doctype stays as it was sent. The text between two block tags is translated as
a whole, so that a sentence with a link in it stays a sentence. The text inside an inline tag is
also translated on its own; if that translation occurs in the whole, the tag is put around it. If
not, each piece of text between two tags is translated on its own.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from html import escape
from html import unescape as unescape_short
from html.parser import HTMLParser
from typing import NamedTuple

from clearhead.localise.glossary import UNSPACED
from clearhead.localise.inline import Inline, TaggedText

INLINE = frozenset(
    {
        "a", "abbr", "b", "bdi", "bdo", "cite", "del", "dfn", "em", "font", "i", "ins", "mark", "q",
        "s", "small", "span", "strike", "strong", "sub", "sup", "tt", "u", "var",
    }
)  # fmt: skip
UNTRANSLATED = frozenset(
    {
        "code", "kbd", "math", "pre", "samp", "script", "style", "svg", "template", "textarea",
    }
)  # fmt: skip
NEVER_CLOSED = frozenset(
    {
        "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source",
        "track", "wbr",
    }
)  # fmt: skip


_NUMBER = re.compile("&#0*([0-9]+);?")
_LONG_NUMBER = re.compile("&#(?=[0-9]{8})")


def unescape(text: str) -> str:
    """Do what `html.unescape` does, which fails at numbers with thousands of digits. No character
    has a number with more than 7 digits."""
    return unescape_short(
        _NUMBER.sub(lambda found: f"&#{found[1]};" if len(found[1]) < 8 else "\ufffd", text)
    )


class HtmlPiece(NamedTuple):
    """A piece of a document: markup, or text between two tags."""

    raw: str
    is_text: bool
    opens: str = ""
    """The inline tag that this piece opens."""
    closes: str = ""
    """The inline tag that this piece closes."""

    @property
    def text(self) -> str:
        """The text as a browser shows it."""
        return _on_one_line(unescape(self.raw))


@dataclass
class Stretch:
    """Texts and inline tags between two block tags."""

    pieces: list[HtmlPiece] = field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        """Return the texts between the tags, as browsers show them."""
        return [piece.text for piece in self.pieces if piece.is_text]

    @property
    def whole(self) -> str:
        """The text of the stretch without its tags."""
        return _on_one_line("".join(unescape(p.raw) for p in self.pieces if p.is_text))

    def anchors(self) -> list[int] | None:
        """Return which texts are inside an inline tag. None: the tags are not balanced, or a tag
        without a text, such as an icon, belongs to a place and not to a text."""
        inside: list[int] = []
        opened: list[tuple[str, int]] = []
        number = 0
        for piece in self.pieces:
            if piece.is_text:
                if opened:
                    inside.append(number)
                number += 1
            elif piece.opens:
                opened.append((piece.opens, number))
            elif not opened:
                return None
            else:
                tag, first = opened.pop()
                if tag != piece.closes or first == number:
                    return None
        return None if opened else inside

    @cached_property
    def tagged(self) -> TaggedText | None:
        """Return the text with short tags in place of its own; None if it has no tags."""
        parts: list[str | Inline] = []
        opened: list[tuple[str, int]] = []
        for number, piece in enumerate(self.pieces):
            if piece.is_text:
                parts.append(piece.text)
            elif piece.opens:
                opened.append((piece.opens, number))
                parts.append(Inline(number, "alone"))
            elif opened and opened[-1][0] == piece.closes:
                start = opened.pop()[1]
                parts[start] = Inline(start, "opens")
                parts.append(Inline(start, "closes"))
            else:
                parts.append(Inline(number, "alone"))
        has_tags = any(isinstance(part, Inline) for part in parts)
        return TaggedText(parts) if has_tags and self.whole.strip() else None

    def wanted(self) -> list[str]:
        """Return the texts whose translations are needed to put the stretch together again."""
        texts, anchors = self.texts, self.anchors()
        if len(texts) < 2 or anchors is None:
            return texts
        return [self.whole, *texts]

    def translated(self, translations: Mapping[str, str]) -> str:
        """Return the stretch with its texts translated."""
        if (by_tags := self.by_tags(translations)) is not None:
            return by_tags
        anchors = self.anchors()
        if len(self.texts) > 1 and anchors is not None:
            whole = self._around(translations, anchors)
            if whole is not None:
                return whole
        return "".join(
            escape(translations[piece.text], quote=False) if piece.is_text else piece.raw
            for piece in self.pieces
        )

    @property
    def tagged_text(self) -> str | None:
        """Return the text for a model that keeps tags."""
        return None if self.tagged is None else _on_one_line(self.tagged.text)

    def by_tags(self, translations: Mapping[str, str]) -> str | None:
        """Return the translation that has kept the tags, with those of the document; None if no
        translation has."""
        text = self.tagged_text
        if self.tagged is None or text is None or text not in translations:
            return None
        parts = self.tagged.parts_of(translations[text])
        if parts is None:
            return None
        ends = {part: piece.raw for part, piece in zip(self.tagged.parts, self.pieces)}
        return "".join(
            escape(part, quote=False) if isinstance(part, str) else ends[part] for part in parts
        )

    def _around(self, translations: Mapping[str, str], anchors: Sequence[int]) -> str | None:
        """Put the tags around the translations of their contents, which are searched for in the
        whole's translation."""
        texts = self.texts
        whole = translations[self.whole]
        before, behind = self._tags()
        parts: list[str] = []
        end = 0
        for anchor in anchors:
            inner = translations[texts[anchor]].strip()
            start = _find_words(whole, inner, end)
            if start < 0:
                return None
            parts += [escape(whole[end:start], quote=False), before[anchor]]
            end = start + len(inner)
            parts += [escape(inner, quote=False), behind[anchor]]
        return "".join([*parts, escape(whole[end:], quote=False)])

    def _tags(self) -> tuple[list[str], list[str]]:
        """Return the tags that open just before each text, and those that close after it."""
        n_texts = len(self.texts)
        before, behind = [""] * n_texts, [""] * n_texts
        number = 0
        for piece in self.pieces:
            if piece.is_text:
                number += 1
            elif piece.opens:
                before[min(number, n_texts - 1)] += piece.raw
            else:
                behind[max(0, number - 1)] += piece.raw
        return before, behind


def _on_one_line(text: str) -> str:
    """Replace line ends inside a text, which are spaces in HTML. At the ends of a text they stay,
    because they are the layout of the document's source."""
    inner = text.strip()
    start = text.find(inner)
    return text[:start] + " ".join(inner.split()) + text[start + len(inner) :]


class HtmlText(HTMLParser):
    """A document as markup that stays and stretches of text. Parsing never fails: what is not HTML
    is text."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.parts: list[str | Stretch] = []
        self._untranslated: list[str] = []
        # The parser passes on what it has understood. The text as sent is in the document, between
        # the places of one call and the next.
        self._document = document
        self._lines = [0]
        for line in document.split("\n"):
            self._lines.append(self._lines[-1] + len(line) + 1)
        self._start, self._take = 0, self._markup
        # There is no tag after the last ">". The parser would search for its end from every "<".
        end = document.rfind(">") + 1
        # Numbers of characters are not needed either; the parser would read them at any length.
        self.feed(_LONG_NUMBER.sub("--", document[:end]))
        self.close()
        self._finish(end)
        self._start, self._take = end, self._markup if self._untranslated else self._text
        self._finish(len(document))

    @property
    def wanted(self) -> list[str]:
        """Return the texts that have to be translated."""
        return self.still_wanted({})

    def still_wanted(self, translations: Mapping[str, str]) -> list[str]:
        """Return the texts of the stretches for which no known translation has kept the tags."""
        waiting = [part for part in self._stretches if part.by_tags(translations) is None]
        texts = [text for part in waiting for text in part.wanted()]
        return [text for text in dict.fromkeys(texts) if text.strip()]

    @property
    def tagged(self) -> list[str]:
        """Return texts with short tags, for models that keep tags."""
        return [part.tagged_text for part in self._stretches if part.tagged_text is not None]

    @property
    def _stretches(self) -> list[Stretch]:
        return [part for part in self.parts if isinstance(part, Stretch)]

    def translated(self, translations: Mapping[str, str]) -> str:
        """Return the document with its texts translated. Texts that consist of white space stay as
        they are."""
        filled = _OrItself(translations)
        return "".join(
            part if isinstance(part, str) else part.translated(filled) for part in self.parts
        )

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Handle a tag that opens."""
        attributes = dict(attrs)
        off = (
            attributes.get("translate") == "no"
            or "notranslate" in (attributes.get("class") or "").split()
        )
        if self._untranslated:
            if tag == self._untranslated[-1]:
                self._untranslated.append(tag)
            self._from_here(self._markup)
        elif tag in UNTRANSLATED or (off and tag not in NEVER_CLOSED):
            self._untranslated.append(tag)
            self._from_here(self._markup)
        elif tag in INLINE:
            self._from_here(partial(self._tag, opens=tag))
        else:
            self._from_here(self._markup)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Handle a tag that opens and closes at once."""
        del tag, attrs
        self._from_here(self._markup)

    def handle_endtag(self, tag: str) -> None:
        """Handle a tag that closes."""
        if self._untranslated:
            if tag == self._untranslated[-1]:
                self._untranslated.pop()
            self._from_here(self._markup)
        elif tag in INLINE:
            self._from_here(partial(self._tag, closes=tag))
        else:
            self._from_here(self._markup)

    def handle_data(self, data: str) -> None:
        """Handle text."""
        del data
        self._from_here(self._markup if self._untranslated else self._text)

    def parse_html_declaration(self, i: int) -> int:
        """Read what the parser does not know, such as `<![x[`, as a comment."""
        try:
            return super().parse_html_declaration(i)
        except AssertionError:
            return self.parse_bogus_comment(i)

    def handle_comment(self, data: str) -> None:
        """Keep the comment as it was sent; the following methods do the same with their parts."""
        del data
        self._from_here(self._markup)

    def handle_decl(self, decl: str) -> None:
        """Keep the declaration as it was sent."""
        del decl
        self._from_here(self._markup)

    handle_pi = unknown_decl = handle_comment

    def _from_here(self, take: Callable[[str], None]) -> None:
        """Pass what begins here to `take`, as soon as its end is known."""
        line, column = self.getpos()
        start = self._lines[line - 1] + column
        self._finish(start)
        self._start, self._take = start, take

    def _finish(self, end: int) -> None:
        if raw := self._document[self._start : end]:
            self._take(raw)

    def _markup(self, raw: str) -> None:
        self.parts.append(raw)

    def _tag(self, raw: str, *, opens: str = "", closes: str = "") -> None:
        piece = HtmlPiece(raw, is_text=False, opens=opens, closes=closes)
        self._stretch().pieces.append(piece)

    def _text(self, raw: str) -> None:
        pieces = self._stretch().pieces
        if pieces and pieces[-1].is_text:  # a sign that could have begun a tag, passed on alone
            raw = pieces.pop().raw + raw
        pieces.append(HtmlPiece(raw, is_text=True))

    def _stretch(self) -> Stretch:
        if not self.parts or isinstance(self.parts[-1], str):
            self.parts.append(Stretch())
        last = self.parts[-1]
        assert isinstance(last, Stretch)
        return last


class _OrItself(dict[str, str]):
    def __missing__(self, text: str) -> str:
        return text


_LETTER = rf"[^\W_{UNSPACED}]"
"""Matches a letter of a script with spaces between its words: not Thai, Lao, Burmese, Khmer, kana
or Chinese."""
_JOINS = re.compile(rf"{_LETTER}[.,'’]?\|[.,'’]?{_LETTER}")
"""Matches a place, marked by |, inside a word or a number."""


def _find_words(whole: str, inner: str, start: int) -> int:
    """Find whole words in a text, from a position on; return -1 if they do not occur. A tag in the
    middle of a word or a number would be worse than a tag around nothing."""
    at_word = whole.find(inner, start) if inner else -1
    while at_word >= 0:
        end = at_word + len(inner)
        cuts = (whole[max(0, at - 2) : at] + "|" + whole[at : at + 2] for at in (at_word, end))
        if not any(map(_JOINS.search, cuts)):
            return at_word
        at_word = whole.find(inner, at_word + 1)
    return -1
