"""Parses the regular expressions of a `tokenizer.json` (Oniguruma's syntax) into trees. A pattern
that is not certainly understood is refused: if clearhead read it differently from the library,
the judgement would be wrong."""

import re
from collections.abc import Iterator
from functools import reduce
from typing import Literal, NoReturn

from clearhead.text.pattern_tree import (
    Alternatives,
    Edge,
    Node,
    OneCharacter,
    Parsed,
    PatternError,
    Repeat,
    Sequence,
    Test,
    has_folded,
    least_bytes,
)

MAX_PATTERN = 2000
"""Characters of a pattern; the longest in use have 600."""
MAX_DEPTH = 50
"""The deepest nesting of brackets."""
MAX_COUNT = 1000
"""The largest count in braces, as in a{2,1000}."""
BLANKS = frozenset("\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000") | frozenset(
    map(chr, range(0x2000, 0x200B))
)
CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v"}
CLASSES = "sSdDwW"
EDGES = "bBAzZG"
ALSO_WORDS = ("Nl", "So")
r"""Categories in which only some characters are letters to \w."""
FOLDED = {"s": "\u017f", "k": "\u212a"}
"""Characters beyond ASCII that equal an ASCII letter if case is ignored."""


def parse(pattern: str) -> Parsed:
    """Parse a pattern. Raises PatternError."""
    if len(pattern) > MAX_PATTERN:
        raise PatternError(f"it has more than {MAX_PATTERN:,} characters")
    parser = _Parser(pattern)
    tree = parser.choice(folded=False)
    if parser.at < len(pattern):
        parser.refuse("a closing bracket has no opening one")
    used = frozenset(parser.borders), frozenset(parser.properties)
    return Parsed(tree, *used, by_category=parser.by_category)


class _Parser:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.borders: set[int] = set()
        self.properties: set[str] = set()
        self.by_category = False
        self.depth = 0

    def refuse(self, why: str) -> NoReturn:
        raise PatternError(f"at character {self.at + 1}, {why}")

    def next_is(self, text: str) -> bool:
        return self.pattern.startswith(text, self.at)

    def skip(self, text: str) -> bool:
        """Move past the text if it comes next, and tell whether it did."""
        matches = self.next_is(text)
        self.at += len(text) if matches else 0
        return matches

    def take(self) -> str:
        if self.at >= len(self.pattern):
            self.refuse("it ends too early")
        self.at += 1
        return self.pattern[self.at - 1]

    def taken(self, expression: str) -> re.Match[str] | None:
        match = re.compile(expression).match(self.pattern, self.at)
        self.at = match.end() if match else self.at
        return match

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.refuse(f"more than {MAX_DEPTH} brackets are open")

    def choice(self, *, folded: bool) -> Node:
        self.deeper()
        items = [self.sequence(folded=folded)]
        while self.skip("|"):
            items.append(self.sequence(folded=folded))
        self.depth -= 1
        return Alternatives(tuple(items)) if len(items) > 1 else items[0]

    def sequence(self, *, folded: bool) -> Node:
        items: list[Node] = []
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            items.append(self.repeated(self.atom(folded=folded)))
        return items[0] if len(items) == 1 else Sequence(tuple(items))

    def repeated(self, item: Node) -> Node:
        """Return the item with the quantifiers that follow it."""
        while True:
            how: Literal["greedy", "lazy", "possessive"] = "greedy"
            if braces := self.taken(r"\{(\d{1,6})?(,)?(\d{1,6})?\}"):
                first, comma, last = braces.groups()
                if first is None and last is None:
                    self.refuse("the braces are empty")
                low = int(first or 0)
                high = low if comma is None else int(last) if last else None
                if max(low, high or 0) > MAX_COUNT or (high is not None and high < low):
                    self.refuse(f"{braces[0]} is not a range up to {MAX_COUNT}")
                if self.skip("?"):
                    if comma is None:
                        self.refuse(f"{braces[0]}? is read in two ways")
                    how = "lazy"
            elif mark := self.taken(r"[*+?]"):
                low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}[mark[0]]
                how = "lazy" if self.skip("?") else "possessive" if self.skip("+") else "greedy"
            else:
                return item
            if isinstance(item, Edge):
                self.refuse("what matches no character is repeated")
            many = high is None or high > 1
            if many and least_bytes(item) == 0:
                self.refuse("what can match no character is repeated")
            if how == "possessive" and not isinstance(item, OneCharacter):
                self.refuse("more than one character is repeated possessively")
            if many and not isinstance(item, OneCharacter) and has_folded(item):
                self.refuse("letters whose case is ignored are repeated")
            item = Repeat(item, low, high, how)

    def atom(self, *, folded: bool) -> Node:
        if self.skip("("):
            return self.group(folded=folded)
        start = self.at
        if self.skip("["):
            test = self.members(folded=folded)
            return OneCharacter(f"{self.pattern[start : self.at]}{folded}", test)
        if self.skip("."):
            return OneCharacter(".", _not(self.between("\n", "\n")))
        if self.next_is("^") or self.next_is("$"):
            return Edge(self.take(), negative=False)
        if self.skip("\\"):
            if self.at < len(self.pattern) and self.pattern[self.at] in EDGES:
                letter = self.take()
                return Edge("\\" + letter.replace("B", "b"), negative=letter == "B")
            if (test := self.class_escape()) is not None:
                if folded:
                    self.refuse("the case of a class is ignored")
                return OneCharacter(self.pattern[start : self.at], test)
            return self.literal(self.escaped_character(), folded=folded)
        if self.pattern[self.at] in "*+?{":
            self.refuse("nothing is there to be repeated")
        return self.literal(self.take(), folded=folded)

    def group(self, *, folded: bool) -> Node:
        start = self.at
        if not self.skip("?") or self.skip(":"):
            node = self.choice(folded=folded)
        elif self.skip("i:"):
            node = self.choice(folded=True)
        elif look := self.taken(r"(<?)([=!])"):
            body = self.choice(folded=folded)
            name = f"({self.pattern[start : self.at]}){folded}"
            node = Edge(name, negative=look[2] == "!", body=body, ahead=not look[1])
        else:
            self.refuse(f"a group that begins with (?{self.pattern[self.at : self.at + 1]}")
        if not self.skip(")"):
            self.refuse("a bracket is not closed")
        return node

    def literal(self, character: str, *, folded: bool) -> OneCharacter:
        if not folded or not character.isalpha():
            test = self.between(character, character)
            return OneCharacter(f"={character}", test, len(character.encode()))
        test = _any(self.both_cases(character, character))
        return OneCharacter(f"~{character}", test, folded=True)

    def both_cases(self, first: str, last: str) -> Iterator[Test]:
        if not (first + last).isascii():
            self.refuse("the case of a letter beyond ASCII is ignored")
        yield self.between(first, last)
        for code in range(ord(first), ord(last) + 1):
            letter = chr(code)
            if letter.isalpha():
                for other in (letter.swapcase(), FOLDED.get(letter.lower(), letter)):
                    yield self.between(other, other)

    def between(self, first: str, last: str) -> Test:
        low, high = ord(first), ord(last)
        if high < low:
            self.refuse(f"the range {first}-{last} is empty")
        self.borders |= {low, high + 1}
        return lambda character: low <= character.code <= high

    def class_escape(self) -> Test | None:
        r"""Read what follows a backslash, such as \s or \p{L}. Returns None if it is no class."""
        if named := self.taken(r"([pP])\{(\^?)([A-Za-z_ ]{1,40})\}"):
            test = self.has_property(named[3])
            return _not(test) if (named[1] == "P") != bool(named[2]) else test
        if letter := self.taken(f"[{CLASSES}]"):
            test = {"s": self.blank, "d": self.digit, "w": self.word}[letter[0].lower()]()
            return _not(test) if letter[0].isupper() else test
        return None

    def blank(self) -> Test:
        self.borders |= {code for blank in BLANKS for code in (ord(blank), ord(blank) + 1)}
        return lambda character: chr(character.code) in BLANKS

    def digit(self) -> Test:
        self.by_category = True
        return lambda character: character.category == "Nd"

    def word(self) -> Test:
        self.by_category = True
        self.properties.add("\\w")
        return lambda character: (
            character.category[0] in "LM"
            or character.category in ("Nd", "Pc")
            or (character.category in ALSO_WORDS and "\\w" in character.properties)
        )

    def has_property(self, name: str) -> Test:
        self.by_category = True
        if re.fullmatch("[LMNPSZC]", name):
            return lambda character: character.category[0] == name
        if re.fullmatch("L[ultmo]|M[nce]|N[dlo]|P[cdseifo]|S[mcko]|Z[slp]|C[cfosn]", name):
            return lambda character: character.category == name
        self.properties.add(name)
        return lambda character: name in character.properties

    def escaped_character(self) -> str:
        if code := self.taken(r"x\{([0-9A-Fa-f]{1,6})\}|x([0-7][0-9A-Fa-f])|u([0-9A-Fa-f]{4})"):
            number = int(code[1] or code[2] or code[3], 16)
            if number > 0x10FFFF or 0xD800 <= number < 0xE000:
                self.refuse(f"\\{code[0]} is not a character")
            return chr(number)
        letter = self.take()
        if letter in CONTROLS:
            return CONTROLS[letter]
        if letter.isalnum() or not letter.isascii():
            self.refuse(f"\\{letter} is not known here")
        return letter

    def members(self, *, folded: bool) -> Test:
        """Return the members of a class in square brackets, whose opening bracket has been read."""
        self.deeper()
        negative = self.skip("^")
        sides: list[list[Test]] = [[]]
        while not self.skip("]"):
            if self.skip("&&"):
                sides.append([])
            elif self.skip("["):
                if self.next_is(":"):
                    self.refuse("[: is not known here")
                sides[-1].append(self.members(folded=folded))
            elif self.skip("\\"):
                test = self.class_escape()
                if test is None:
                    sides[-1].append(self.range_from(self.escaped_character(), folded=folded))
                elif folded or (self.next_is("-") and not self.next_is("-]")):
                    self.refuse("a class begins a range, or its case is ignored")
                else:
                    sides[-1].append(test)
            else:
                if self.next_is("--"):
                    self.refuse("a range that is read in two ways")
                sides[-1].append(self.range_from(self.take(), folded=folded))
        if folded and negative:
            self.refuse("the case of a negative class is ignored")
        if (negative and len(sides) > 1) or not all(sides):
            self.refuse("an empty class, or && in a negative one")
        self.depth -= 1
        test = reduce(_both, map(_any, sides))
        return _not(test) if negative else test

    def range_from(self, first: str, *, folded: bool) -> Test:
        last = first
        if self.next_is("-") and not self.next_is("-]"):
            self.skip("-")
            if self.next_is("[") or self.next_is("&&"):
                self.refuse("a range that is read in two ways")
            backslash = self.skip("\\")
            if backslash and self.class_escape() is not None:
                self.refuse("a range ends with a class")
            last = self.escaped_character() if backslash else self.take()
        return _any(self.both_cases(first, last)) if folded else self.between(first, last)


def _not(test: Test) -> Test:
    return lambda character: not test(character)


def _any(tests: Iterator[Test] | list[Test]) -> Test:
    all_tests = tuple(tests)
    return lambda character: any(test(character) for test in all_tests)


def _both(left: Test, right: Test) -> Test:
    return lambda character: left(character) and right(character)
