"""Decides whether searching for a regular expression takes linear time, whatever the text.

The library searches by backtracking: at each place of a text it tries the paths through the
pattern in their order, and goes back at each dead end. Here all these paths are followed at the
same time, over all texts: a text is a sequence of kinds of characters that the pattern can tell
apart, so there are finitely many situations. A pattern is linear if

- no text keeps more than a few paths open (else the number of paths multiplies), and
- no text is read on and on without a match, from one place and from the next one again (else the
  same text is read once for each of its places).
"""

import unicodedata
from collections.abc import Collection, Iterator
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from clearhead.text.pattern_tree import (
    Alternatives,
    Character,
    Edge,
    Node,
    OneCharacter,
    Parsed,
    PatternError,
    Repeat,
    Sequence,
    Test,
    least_bytes,
    most_characters,
)
from clearhead.text.patterns import parse

MAX_PATHS = 60
MAX_PROGRAM = 3000
MAX_WORK = 100_000
"""The highest amount of work that the proof may take; patterns in use need a quarter of it."""
MAX_QUESTIONS = 300_000
"""How often the proof may ask whether a character is in a set; patterns in use need a sixth of
it."""
MAX_WASTE = 2000
"""The highest number of steps at one place that consume no character; patterns in use take 100."""
MAX_LOOK = 100
"""Steps that a look ahead or behind may take."""
MAX_FREE = 4
"""The highest number of properties and edges about which nothing is known: each doubles the kinds
of characters."""
EXACT = 0x80
"""The last code point up to which each character is examined separately."""
CATEGORIES = ["Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps"]
CATEGORIES += ["Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs"]
CATEGORIES += ["Co", "Cn"]


class Instruction(NamedTuple):
    """One instruction of a program that matches a pattern."""

    kind: str
    """"character", "next" (a look at it), "edge", "split" (both ways, the first one first), "jump",
    "match"."""
    which: int = 0
    """The number of the test or edge, or where to go."""
    other: int = 0
    """The second way, or whether an edge is negative."""


class Symbol(NamedTuple):
    """What can come next in a text: a kind of character, or the end."""

    character: tuple[bool, ...]
    """The answer to each test."""
    edges: tuple[bool, ...]
    """Which edges hold before it."""


Paths = tuple[int, ...]
"""The open paths, each as a place in the program; the path that is tried first comes first."""


class Move(NamedTuple):
    """The effect of a symbol on open paths."""

    symbol: Symbol
    to: Paths
    is_match: bool
    work: int


@lru_cache(maxsize=256)
def check_linear(pattern: str) -> int:
    """Return the length in bytes of the shortest text that the pattern matches. Raises PatternError
    unless searching for the pattern takes linear time."""
    parsed = parse(pattern)
    _check(parsed, parsed.tree, MAX_WASTE)
    return least_bytes(parsed.tree)


def compiled(parsed: Parsed, tree: Node) -> "PatternProgram":
    """Compile a pattern, or a part of one, into a program."""
    program = PatternProgram(parsed)
    program.add(tree)
    program.steps.append(Instruction("match"))
    return program


def _check(parsed: Parsed, tree: Node, max_waste: int) -> None:
    moves = _explore(compiled(parsed, tree))
    fruitless = _fruitless(moves)
    # If an attempt loops, it reads the text to its end for nothing. The search is linear only if no
    # attempt that begins later in the same text loops as well.
    loops = _loops(_ways(fruitless))
    inside = {move.symbol.character for at in loops for move in fruitless[at] if move.to in loops}
    if inside:
        later = _reached(_ways(moves, inside), START)
        again = _ways({at: fruitless[at] for at in later & fruitless.keys()}, inside)
        if _loops(again):
            raise PatternError("some texts are read again for each of their characters")
    waste = _most_work({at: outgoing for at, outgoing in fruitless.items() if at not in loops})
    if waste > max_waste:
        raise PatternError(
            f"some texts take {waste:,} steps per character, more than {max_waste:,}"
        )


START: Paths = (0,)
NOWHERE: Paths = ()


class PatternProgram:
    """The instructions that match a pattern, and the questions that they ask about a text."""

    def __init__(self, parsed: Parsed) -> None:
        self.parsed = parsed
        self.steps: list[Instruction] = []
        self.tests: list[Test] = []
        self.numbers: dict[str, int] = {}
        self.edges: list[str] = []

    def add(self, node: Node) -> None:
        """Add the instructions of a node."""
        if len(self.steps) > MAX_PROGRAM:
            raise PatternError("it repeats too much")
        match node:
            case OneCharacter():
                self._put("character", self._test(node))
            case Sequence():
                for item in node.items:
                    self.add(item)
            case Alternatives():
                ends: list[int] = []
                for item in node.items[:-1]:
                    split = self._put("split")
                    self.add(item)
                    ends.append(self._put("jump"))
                    self._split(split, split + 1, len(self.steps))
                self.add(node.items[-1])
                for end in ends:
                    self.steps[end] = Instruction("jump", len(self.steps))
            case Repeat():
                self._repeat(node)
            case Edge():
                self._edge(node)

    def _put(self, kind: str, which: int = 0, other: int = 0) -> int:
        self.steps.append(Instruction(kind, which, other))
        return len(self.steps) - 1

    def _split(self, at: int, first: int, second: int) -> None:
        self.steps[at] = Instruction("split", first, second)

    def _test(self, node: OneCharacter) -> int:
        if node.name not in self.numbers:
            self.numbers[node.name] = len(self.tests)
            self.tests.append(node.test)
        return self.numbers[node.name]

    def _repeat(self, node: Repeat) -> None:
        for _ in range(node.low):
            self.add(node.item)
        splits: list[int] = []
        if node.high is None:
            start = self._put("split")
            splits.append(start)
            self.add(node.item)
            self._put("jump", start)
        else:
            for _ in range(node.high - node.low):
                splits.append(self._put("split"))
                self.add(node.item)
        out = len(self.steps)
        if node.how == "possessive":
            # Another repetition is not possible, which is why the repetition has ended.
            assert isinstance(node.item, OneCharacter)
            over = self._put("jump", out + 2) if node.high is not None else None
            out = self._put("next", self._test(node.item), True)
            assert over is None or over + 1 == out
        for split in splits:
            ways = (split + 1, out)
            self._split(split, *(ways[::-1] if node.how == "lazy" else ways))

    def _edge(self, node: Edge) -> None:
        if isinstance(node.body, OneCharacter) and node.ahead:
            self._put("next", self._test(node.body), node.negative)
            return
        if node.body is not None:
            most = most_characters(node.body)
            if most is None or most > MAX_LOOK:
                raise PatternError("a lookahead or lookbehind has no limit")
            _check(self.parsed, node.body, MAX_LOOK)
        if node.name not in self.edges:
            self.edges.append(node.name)
        self._put("edge", self.edges.index(node.name), node.negative)

    def symbols(self) -> list[Symbol]:
        """Return everything that can come next, as far as the program can distinguish it."""
        if len(self.edges) + len(self.parsed.properties) > MAX_FREE:
            raise PatternError("it uses too many properties")
        # A set of n characters has 2 n borders, and takes n comparisons.
        characters = list(_characters(self.parsed))
        if len(characters) * (len(self.tests) + len(self.parsed.borders) // 2) > MAX_QUESTIONS:
            raise PatternError("it names too many characters")
        kinds = {tuple(test(character) for test in self.tests) for character in characters}
        kinds.add((False,) * len(self.tests))  # the end of the text
        edges = list(product((False, True), repeat=len(self.edges)))
        return [Symbol(kind, held) for kind in sorted(kinds) for held in edges]

    def move(self, paths: Paths, symbol: Symbol) -> Move:
        """Return the paths after a symbol. The first match ends all later paths."""
        to: list[int] = []
        work = 0
        for path in paths:
            waiting = [path]
            while waiting:
                at = waiting.pop()
                step = self.steps[at]
                work += 1
                match step.kind:
                    case "match":
                        return Move(symbol, tuple(to), True, work)
                    case "split":
                        waiting += [step.other, step.which]
                    case "jump":
                        waiting.append(step.which)
                    case "character":
                        if symbol.character[step.which]:
                            to.append(at + 1)
                    case _:
                        answers = symbol.character if step.kind == "next" else symbol.edges
                        if answers[step.which] != step.other:
                            waiting.append(at + 1)
            if len(to) > MAX_PATHS:
                raise PatternError("some texts can be matched in too many ways")
        return Move(symbol, tuple(to), False, work)


def _characters(parsed: Parsed) -> Iterator[Character]:
    """Return characters that include at least one of each kind that some set of the pattern
    distinguishes. Between two borders, every category is assumed to be possible, because Unicode
    grows."""
    borders = sorted({*parsed.borders, *range(EXACT + 1)})
    free = sorted(parsed.properties)
    having = [
        frozenset(name for name, has in zip(free, held) if has)
        for held in product((False, True), repeat=len(free))
    ]
    for low, high in zip(borders, [*borders[1:], 0x110000]):
        is_single = high - low == 1 or not parsed.by_category
        for category in [unicodedata.category(chr(low))] if is_single else CATEGORIES:
            for properties in having:
                yield Character(low, category, properties)


def _explore(program: PatternProgram) -> dict[Paths, list[Move]]:
    """Return the moves from each situation that some text leads to."""
    symbols, moves = program.symbols(), dict[Paths, list[Move]]()
    waiting, work = [START], 0
    while waiting:
        paths = waiting.pop()
        if paths in moves:
            continue
        moves[paths] = [program.move(paths, symbol) for symbol in symbols]
        work += sum(move.work for move in moves[paths])
        if work > MAX_WORK:
            raise PatternError("it is too complicated")
        waiting += {move.to for move in moves[paths] if move.to}
    return moves


def _fruitless(moves: dict[Paths, list[Move]]) -> dict[Paths, list[Move]]:
    """Return the moves that may lead to a dead end without a match on the way."""
    incoming: Ways = {at: set() for at in [*moves, NOWHERE]}
    for at, outgoing in moves.items():
        for move in outgoing:
            if not move.is_match:
                incoming[move.to].add(at)
    doomed = _reached(incoming, NOWHERE)
    return {
        at: [move for move in outgoing if not move.is_match and move.to in doomed]
        for at, outgoing in moves.items()
        if at in doomed
    }


Ways = dict[Paths, set[Paths]]
"""Which situations follow each situation."""


def _ways(
    moves: dict[Paths, list[Move]], characters: Collection[tuple[bool, ...]] | None = None
) -> Ways:
    """Return the ways by any move, or only by moves over some characters."""
    return {
        at: {
            move.to
            for move in outgoing
            if move.to in moves and (characters is None or move.symbol.character in characters)
        }
        for at, outgoing in moves.items()
    }


def _reached(ways: Ways, start: Paths) -> set[Paths]:
    reached, waiting = {start}, [start]
    while waiting:
        new = ways[waiting.pop()] - reached
        reached |= new
        waiting += new
    return reached


def _loops(ways: Ways) -> set[Paths]:
    """Return the situations in which a text can loop, and those on the way from one such loop to
    another."""
    left = ways.keys() - _from_dead_ends(ways)
    back: Ways = {at: set() for at in left}
    for at in left:
        for to in ways[at] & left:
            back[to].add(at)
    return left - {*_from_dead_ends(back)}


def _from_dead_ends(ways: Ways) -> list[Paths]:
    """Return the situations that lead to no loop, each after all situations that follow it."""
    before: dict[Paths, list[Paths]] = {at: [] for at in ways}
    for at, following in ways.items():
        for to in following:
            before[to].append(at)
    missing = {at: len(following) for at, following in ways.items()}
    done = [at for at, n in missing.items() if n == 0]
    for at in done:  # the list grows during the loop
        for earlier in before[at]:
            missing[earlier] -= 1
            if missing[earlier] == 0:
                done.append(earlier)
    return done


def _most_work(moves: dict[Paths, list[Move]]) -> int:
    """Return the highest amount of work on any way through situations without loops."""
    most: dict[Paths, int] = {}
    for at in _from_dead_ends(_ways(moves)):
        most[at] = max((move.work + most.get(move.to, 0) for move in moves[at]), default=0)
    return max(most.values(), default=0)
