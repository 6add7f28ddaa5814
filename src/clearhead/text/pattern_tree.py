"""A regular expression as a tree, and what can be read off it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple


class PatternError(Exception):
    """A pattern that is not understood, or too expensive; says why."""


class Character(NamedTuple):
    """One of the characters that a pattern can tell apart."""

    code: int
    category: str
    """The category in Unicode, such as Lu."""
    properties: frozenset[str]
    """The properties whose members we do not know and that this character has."""


Test = Callable[[Character], bool]


@dataclass(frozen=True)
class OneCharacter:
    """One character of a set."""

    name: str
    """A name that is the same for the same test."""
    test: Test
    n_bytes: int = 1
    """The fewest bytes that it takes in UTF-8."""
    folded: bool = False
    """A letter whose case is ignored."""


@dataclass(frozen=True)
class Sequence:
    """One after the other."""

    items: tuple["Node", ...]


@dataclass(frozen=True)
class Alternatives:
    """The first that leads to a match, in their order."""

    items: tuple["Node", ...]


@dataclass(frozen=True)
class Repeat:
    """The item as often as it goes, or as rarely, or as often and never less."""

    item: "Node"
    low: int
    high: int | None
    how: Literal["greedy", "lazy", "possessive"]


@dataclass(frozen=True)
class Edge:
    """What holds between two characters; `name` tells one from another. With a `body`: a look ahead
    or behind."""

    name: str
    negative: bool
    body: "Node | None" = None
    ahead: bool = False


Node = OneCharacter | Sequence | Alternatives | Repeat | Edge


class Parsed(NamedTuple):
    """A pattern that was understood, and what it asks about characters."""

    tree: Node
    borders: frozenset[int]
    """Codes at which some set of characters begins or has ended."""
    properties: frozenset[str]
    """The properties whose members we do not know, such as scripts."""
    by_category: bool
    """Whether categories of Unicode matter."""


def least_bytes(node: Node) -> int:
    """The bytes of the shortest text that the node matches."""
    match node:
        case OneCharacter():
            return node.n_bytes
        case Sequence():
            return sum(map(least_bytes, node.items))
        case Alternatives():
            return min(map(least_bytes, node.items))
        case Repeat():
            return node.low * least_bytes(node.item)
        case Edge():
            return 0


def most_characters(node: Node) -> int | None:
    """The characters of the longest text that the node matches; None: there is no limit."""
    match node:
        case OneCharacter():
            return 1
        case Edge():
            return 0
        case Repeat():
            most = most_characters(node.item)
            return None if most is None or node.high is None else node.high * most
    widths = [most_characters(item) for item in node.items]
    limited = [width for width in widths if width is not None]
    if len(limited) < len(widths):
        return None
    return sum(limited) if isinstance(node, Sequence) else max(limited)


def has_folded(node: Node) -> bool:
    """Whether the case of a letter in it is ignored."""
    match node:
        case OneCharacter():
            return node.folded
        case Repeat():
            return has_folded(node.item)
        case Sequence() | Alternatives():
            return any(map(has_folded, node.items))
        case Edge():
            return False
