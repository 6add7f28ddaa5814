"""Finds the spans of a text that a translation must keep unchanged: `%s`, `{name}`, `<b>`, `&amp;`,
web addresses, roles such as ``:ref:`x` ``. The format of the text, as gettext's flags name it,
decides which signs begin a span."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Literal

Reading = Literal["always", "likely", "never"]
"""When a sign such as % begins a placeholder. "always": each one does, or is written twice.
"likely": if the text after it looks like a placeholder; a % that begins none is a span of its own,
since beside other text it could become one. "never": the sign is text."""
SpanKind = Literal["printf", "brace", "shell", "tag", "entity", "role", "url"]

_NUMBERED = frozenset(["c", "objc", "gcc-internal", "php", "perl", "awk"])
_PRINTF = _NUMBERED | {"gfc-internal", "lua", "javascript", "python", "ruby", "tcl"}
_BRACE = frozenset(["python-brace", "perl-brace", "java", "csharp", "c++", "rust"])
_SHELL = frozenset(["sh"])
_UNREAD = {
    "scheme": "~",
    "lisp": "~",
    "smalltalk": "%",
    "object-pascal": "%",
    "gfc-internal": "%",
    "gcc-internal": "%",
    "boost": "%",
    "php": "%'",
}
"""Formats with placeholders that no rule here finds, and what each of these begins with."""


@dataclass(frozen=True)
class SpanRules:
    """The rules for placeholders in a text. Tags, entities, roles and addresses are always
    spans."""

    printf: Reading = "likely"
    brace: Reading = "likely"
    shell: Reading = "never"
    numbered: bool = False
    """True if `%2$s` may be written for the second `%s`, so that the order may change."""
    quotes: bool = False
    """True if an apostrophe begins a part without placeholders, as in Java; two stand for one."""
    unread: tuple[str, ...] = ()
    """What placeholders begin with that these rules do not find."""

    def misread(self, text: str) -> bool:
        """Tell whether a text may have placeholders that these rules do not find, or parts in
        which what they find is no placeholder."""
        if self.quotes and "{" in text and "'" in text.replace("''", ""):
            return True
        return any(beginning in text for beginning in self.unread)


def rules_of(flags: Iterable[str]) -> SpanRules:
    """Return the rules for gettext's flags: `c-format`, `no-c-format`, `python-brace-format`…"""
    readings: dict[str, Reading] = {}
    formats = {flag.removesuffix("-format") for flag in flags if flag.endswith("-format")}
    groups = (("printf", _PRINTF), ("brace", _BRACE), ("shell", _SHELL))
    for name, group in groups:
        if formats & group:
            readings[name] = "always"
        elif formats & {f"no-{format_name}" for format_name in group}:
            readings[name] = "never"
    if "always" in readings.values():  # a text has one format
        readings = {name: readings.get(name, "never") for name, _ in groups}
    return SpanRules(
        **readings,
        numbered=bool(formats & _NUMBERED),
        quotes="java" in formats,
        unread=tuple(sorted(_UNREAD[name] for name in formats & _UNREAD.keys())),
    )


@dataclass(frozen=True)
class Span:
    """A part of a text that must survive translation."""

    start: int
    text: str
    kind: SpanKind

    @property
    def stop(self) -> int:
        """The end of the span in its text."""
        return self.start + len(self.text)

    @cached_property
    def takes(self) -> int:
        """The number of unnumbered arguments that the span takes: `%s` one, `%*d` two, `%2$s`, `%%`
        and `{name}` none; a tag or a role, those inside it (`<a href="%s">`)."""
        if self.kind in ("tag", "role"):
            inside = [Span(m.start(), m[0], m.lastgroup) for m in _INSIDE.finditer(self.text)]  # pyright: ignore[reportArgumentType]
            return sum(span.takes for span in inside)
        if self.kind == "printf" and _UNNUMBERED.fullmatch(self.text):
            return 1 + self.text.count("*")
        return int(self.kind == "brace" and self.text[1:2] in ("}", ":", "!"))

    @cached_property
    def tag(self) -> tuple[str, bool] | None:
        """The name of a tag, and whether it opens or closes; None for anything else, and for tags
        without an end tag (`<br/>`)."""
        match = _TAG_NAME.match(self.text) if self.kind == "tag" else None
        if match is None or self.text.endswith("/>"):
            return None
        return match[2].lower(), not match[1]


def find_spans(text: str, rules: SpanRules) -> list[Span]:
    """Return the spans of a text, in their order. They do not overlap."""
    return [
        Span(match.start(), match[0], match.lastgroup)  # pyright: ignore[reportArgumentType]
        for match in _pattern(rules).finditer(text)
    ]


def pairs_of_tags(spans: Sequence[Span]) -> dict[int, int]:
    """Return the number of the closing tag for each tag that opens. Tags that are not nested in the
    text itself have no partner."""
    opened: list[tuple[str, int]] = []
    pairs: dict[int, int] = {}
    for number, span in enumerate(spans):
        if span.tag is None:
            continue
        name, opens = span.tag
        if opens:
            opened.append((name, number))
        elif name in (other for other, _ in opened):
            while opened[-1][0] != name:  # <p> and <li> need no end
                opened.pop()
            pairs[opened.pop()[1]] = number
    return pairs


def identities(spans: Sequence[Span]) -> list[str]:
    """Return the meaning of each span, which is its text. An unnumbered argument gets its number,
    so that the second `%s` becomes `%2$s`."""
    n_taken, names = 0, list[str]()
    for span in spans:
        numbered = span.kind == "printf" and span.takes == 1
        n_taken += span.takes
        names.append(with_number(span, n_taken) if numbered else span.text)
    return names


def with_number(span: Span, number: int) -> str:
    """Return `%s` as `%2$s`."""
    return f"%{number}${span.text[1:]}"


def signs_of(rules: SpanRules) -> str:
    """Return the characters without which a text has no spans except addresses."""
    percent = "" if rules.printf == "never" else "%"
    braces = "" if rules.brace == rules.shell == "never" else "{}$"
    return f"<>&`{percent}{braces}"


# Quantifiers are possessive (++) or bounded: a text may come from anybody.
_SIZE = r"(?:\d++|\*(?:\d++\$)?+)"
_LENGTH = r"(?:hh|ll|[hlLqjzZt])?+"
_WIDTH = rf"{_SIZE}?+(?:\.{_SIZE}?+)?+"
_MACRO = r"<PRI[a-zA-Z0-9]++>"
_NAMED = rf"%\([^()]{{1,200}}\)[-+ #0]*+{_WIDTH}{_LENGTH}[a-zA-Z]"
_RUBY = r"%\{\w++\}|%<(?!PRI)\w++>[a-z]?+"
_C = rf"%(?:\d++\$)?+[-+ #0'I]*+{_WIDTH}(?:{_LENGTH}[a-zA-Z@]|{_MACRO})"
_LIKELY_C = (
    rf"%(?:\d++\$)?+[-+#0']*+{_WIDTH}"
    rf"(?:{_LENGTH}(?:[sdiu]|[a-zA-Z@](?![a-z]))|{_MACRO})"
)
_UNNUMBERED = re.compile(r"%(?!%|\d+\$|\(|\{|<(?!PRI)|L?\d+%?\Z)[^$]*[^$m%]")
_INSIDE = re.compile(rf"(?P<printf>%%|{_C})|(?P<brace>\{{[^{{}}]*+\}})")
_QT = r"%L?\d{1,2}+%?+(?![\d$])"
_FIELD = r"\{[^{}]*+(?:\{[^{}]*+\}[^{}]*+)*+\}"
_ICU = (
    r"\{\s*+\w++\s*+,\s*+(?:plural|select|selectordinal)\s*+,"
    r"(?:[^{}]|\{(?:[^{}]|\{[^{}]*+\})*+\})*+\}"
)
_LIKELY_FIELD = (
    r"\$?\{(?:[A-Za-z_][\w.\[\]-]*+|\d++)?+(?:![rsa])?+(?::[^{}\s]*+)?+\}"
    r"|\{\s*+\w++\s*+,\s*+(?:number|date|time|ordinal|duration|spellout)\b[^{}]*+\}"
    r"|\{\{[^{}]{1,200}+\}\}"
)
_TAG_NAME = re.compile(r"<(/?)([A-Za-z][\w:.-]*)")
_OTHER: dict[str, str] = {
    "tag": r"</?+[A-Za-z][\w:.-]*+(?:\s[^<>]*+)?+/?>|<!--(?:[^-]|-(?!->))*+-->",
    "entity": r"&(?:[A-Za-z][A-Za-z0-9]{1,31}+|\#\d{1,7}+|\#[xX][0-9A-Fa-f]{1,6}+);",
    "role": r":[A-Za-z][\w+.-]{0,40}+(?::[A-Za-z][\w+.-]{0,40}+)?+:`[^`]++`|``[^`]++``",
}


@cache
def _pattern(rules: SpanRules) -> re.Pattern[str]:
    printf = {
        "always": rf"%%|{_NAMED}|{_RUBY}|{_C}|%",
        "likely": rf"%%|{_NAMED}|{_RUBY}|{_LIKELY_C}|{_QT}|%",
        "never": "",
    }
    brace = {
        "always": rf"\{{\{{|\}}\}}|{_ICU}|{_FIELD}|[{{}}]",
        "likely": rf"{_ICU}|{_LIKELY_FIELD}",
        "never": "",
    }
    shell = {"always": r"\$(?:\w++|\{[^{}]*+\})", "likely": r"\$\{\w++\}", "never": ""}
    # In an address, %20 is a letter; where % begins a placeholder, the address ends before it.
    letter = r"[^\s<>\"'`{}%]" + ("" if rules.printf == "always" else "|%[0-9A-Fa-f]{2}")
    kinds = {
        "printf": printf[rules.printf],
        "brace": brace[rules.brace],
        "shell": shell[rules.shell],
        **_OTHER,
        "url": rf"(?<!\w)(?:https?|ftps?|file)://(?:{letter})+(?<![.,;:!?)\]])"
        r"|(?<![\w.+-])[\w.+-]{1,64}+@[\w-]++(?:\.[\w-]++)++",
    }
    return re.compile("|".join(f"(?P<{kind}>{form})" for kind, form in kinds.items() if form))
