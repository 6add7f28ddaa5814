"""A regular expression as a tree, and the facts that the tree shows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple


class PatternError(Exception):
    """A pattern that is not understood, or that is too expensive; the message says why."""


class Character(NamedTuple):
    """One of the characters that a pattern can distinguish."""

    code: int
    category: str
    """The category in Unicode, such as Lu."""
    properties: frozenset[str]
    """The properties with unknown members that this character has."""


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
    """Items that follow one another."""

    items: tuple["Node", ...]


@dataclass(frozen=True)
class Alternatives:
    """Several patterns, tried in their order; the first that leads to a match counts."""

    items: tuple["Node", ...]


@dataclass(frozen=True)
class Repeat:
    """An item that is repeated as often as possible, as rarely as possible, or as often as possible
    without giving back."""

    item: "Node"
    low: int
    high: int | None
    how: Literal["greedy", "lazy", "possessive"]


@dataclass(frozen=True)
class Edge:
    """A condition between two characters; `name` distinguishes conditions. With a `body`, it looks
    ahead or behind."""

    name: str
    negative: bool
    body: "Node | None" = None
    ahead: bool = False


Node = OneCharacter | Sequence | Alternatives | Repeat | Edge


class Parsed(NamedTuple):
    """A pattern that was understood, and the questions that it asks about characters."""

    tree: Node
    borders: frozenset[int]
    """Codes at which some set of characters begins or has ended."""
    properties: frozenset[str]
    """The properties whose members are unknown here, such as scripts."""
    by_category: bool
    """True if categories of Unicode matter."""


def least_bytes(node: Node) -> int:
    """Return the length in bytes of the shortest text that the node matches."""
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
    """Return the number of characters of the longest text that the node matches; None: there is no
    limit."""
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
    """Tell whether the node ignores the case of a letter."""
    match node:
        case OneCharacter():
            return node.folded
        case Repeat():
            return has_folded(node.item)
        case Sequence() | Alternatives():
            return any(map(has_folded, node.items))
        case Edge():
            return False
