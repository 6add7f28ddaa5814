"""Patterns are read as the library reads them, and those that are accepted take linear time."""

import random
import time
import unicodedata
from collections.abc import Iterator

import pytest
from tokenizers import Regex
from tokenizers.pre_tokenizers import Split

from clearhead.text.pattern_cost import Symbol, check_linear, compiled
from clearhead.text.pattern_tree import Character, Edge, PatternError, Repeat
from clearhead.text.patterns import parse

SETS = ["a", "b", " ", "1", "A", "é", "'", r"\s", r"\S", r"\p{L}", r"\P{N}", r"\w", r"\d", r"\n"]
SETS += [
    "[ab]",
    "[^a]",
    "[a-c]",
    r"[^\s\p{L}]",
    ".",
    r"[\p{Lu}1]",
    "[a-z&&[^b]]",
    r"[\w-]",
    r"\x{41}",
]
EDGES = [
    r"(?!\S)",
    "(?=a)",
    "(?!a)",
    "(?=ab)",
    "(?<=a)",
    "(?<!b)",
    r"\b",
    r"\B",
    "$",
    "^",
    "(?!b|c)",
]
COUNTS = ["*", "+", "?", "*?", "+?", "??", "{2}", "{1,3}", "{2,}", "{,2}", "++", "*+", "?+"]
COUNTS += ["{1,2}?", "{1,2}+"]
LETTERS = "aaabbc  1Aé'\n.-st"


def drawn_pattern(draw: random.Random) -> str:
    return "|".join(_sequence(draw, 3) for _ in range(draw.randint(1, 4)))


def _sequence(draw: random.Random, depth: int) -> str:
    return "".join(_counted(draw, _atom(draw, depth)) for _ in range(draw.randint(1, 3)))


def _counted(draw: random.Random, atom: str) -> str:
    return atom + draw.choice(COUNTS) if draw.random() < 0.5 and atom not in EDGES else atom


def _atom(draw: random.Random, depth: int) -> str:
    kind = draw.random()
    if depth and kind < 0.25:
        items = "|".join(_sequence(draw, depth - 1) for _ in range(draw.randint(1, 3)))
        return f"{draw.choice(['(', '(?:'])}{items})"
    if kind < 0.32:
        return draw.choice(EDGES)
    if kind < 0.37:
        return f"(?i:{''.join(draw.choices('stab', k=draw.randint(1, 3)))})"
    return draw.choice(SETS)


def drawn_text(draw: random.Random, letters: str, most: int) -> str:
    return "".join(draw.choices(letters, k=draw.randint(0, most)))


def understood(seed: int, n: int) -> Iterator[tuple[str, random.Random]]:
    """Patterns that we understand and that the library takes."""
    draw = random.Random(seed)
    while n:
        pattern = drawn_pattern(draw)
        try:
            parse(pattern)
            Regex(pattern)
        except PatternError:
            continue
        except Exception:  # the library raises nothing narrower
            continue
        n -= 1
        yield pattern, draw


def matched(pattern: str, text: str) -> list[tuple[int, int]]:
    """Where we find the pattern, by the program that is judged."""
    parsed = parse(pattern)
    program = compiled(parsed, parsed.tree)
    looks = {node.name: node for node in _edges(parsed.tree)}

    def end_of(program, start: int, text: str) -> int | None:
        paths, found, place = (0,), None, start
        while paths:
            letter = text[place : place + 1]
            kinds = tuple(
                letter != ""
                and test(Character(ord(letter), unicodedata.category(letter), frozenset()))
                for test in program.tests
            )
            edges = tuple(holds(name, place, text) for name in program.edges)
            move = program.move(paths, Symbol(kinds, edges))
            found, paths, place = (place if move.is_match else found), move.to, place + 1
        return found

    def holds(name: str, place: int, text: str) -> bool:
        def is_word(at: int) -> bool:
            return 0 <= at < len(text) and (text[at].isalnum() or text[at] == "_")

        if name == r"\b":
            return is_word(place - 1) != is_word(place)
        if name == "$":
            return text[place : place + 1] in ("", "\n")
        if name == "^":
            return place == 0 or (text[place - 1] == "\n" and place < len(text))
        look = looks[name]
        assert look.body is not None
        body = compiled(parsed, look.body)
        if look.ahead:
            return end_of(body, place, text) is not None
        return any(end_of(body, start, text[:place]) == place for start in range(place + 1))

    found, place = [], 0
    while place <= len(text):
        end = end_of(program, place, text)
        if end is not None and end > place:
            found.append((place, end))
        place = max(place + 1, end or 0)
    return found


def _edges(node) -> Iterator[Edge]:
    if isinstance(node, Edge):
        yield node
    elif isinstance(node, Repeat):
        yield from _edges(node.item)
    for item in getattr(node, "items", ()):
        yield from _edges(item)


def test_patterns_match_what_the_library_matches():
    for pattern, draw in understood(1, 150):
        split = Split(Regex(pattern), "removed", invert=True)
        for _ in range(5):
            text = drawn_text(draw, LETTERS, 10)
            try:
                found = matched(pattern, text)
            except PatternError:
                break  # a look without end, or too many ways
            assert found == [place for _, place in split.pre_tokenize_str(text)], (pattern, text)


@pytest.mark.slow
def test_an_accepted_pattern_takes_linear_time():
    n_accepted = 0
    for pattern, draw in understood(2, 150):
        try:
            check_linear(pattern)
        except PatternError:
            continue
        n_accepted += 1
        split = Split(Regex(pattern), "isolated")
        for _ in range(4):
            again = drawn_text(draw, "aabc 1A.\n", 4) or "a"
            text = drawn_text(draw, "ab 1", 2) + again * (20_000 // len(again))
            text += drawn_text(draw, "ab 1", 2)
            started = time.process_time()
            split.pre_tokenize_str(text)
            # Quadratic: 6 s. Each match is a piece of text, which takes a microsecond.
            assert time.process_time() - started < 2, (pattern, again)
    assert n_accepted > 30


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(?:a|a){22}[bc0-9]", "in too many ways"),
        ("(a+)+b", "in too many ways"),
        ("a*a*b", "in too many ways"),
        ("a?" * 30 + "a" * 30, "in too many ways"),
        ("([a-z])(([-.]|_+)?([a-z]+))*@", "in too many ways"),
        ("a*b", "again for each"),
        ("a*b|.", "again for each"),
        (r"\s+$", "again for each"),
        (" +▁", "again for each"),
        ("a++b", "again for each"),
        ("a*b|(?<=a)a|a+", "again for each"),
        ("a(?:a*b)?", "again for each"),
        (r"\d{1,3}(?=(?:\d{3})*\b)", "no limit"),
        ("(?:a{999}b|c){2}d", "steps per character"),
        (r"(a)\1", "not known here"),
        ("(?>a*)b", r"a group that begins with \(\?>"),
        ("(?<n>a)", "a group that begins with"),
        ("(?:a?)*", "can match no character"),
        ("[[:alpha:]]", "not known here"),
        ("a{3000}", "is not a range"),
        ("(" * 60 + "a" + ")" * 60, "brackets are open"),
        ("".join(map(chr, range(0x400, 0x800))), "too many characters"),
        (r"\p{Han}\p{Thai}\p{Greek}\p{Latin}\p{Arabic}", "too many properties"),
        ("a" * 3000, "more than 2,000 characters"),
    ],
)
def test_what_is_not_linear_or_not_understood_is_refused(pattern: str, why: str):
    with pytest.raises(PatternError, match=why):
        check_linear(pattern)


def test_the_shortest_match_is_known():
    shortest = {"": 0, "▁": 3, " {2,}": 2, "a|bc": 1, r"\s+(?!\S)": 1, "(?=.)": 0, "a?": 0}
    for pattern, n_bytes in shortest.items():
        assert check_linear(pattern) == n_bytes
