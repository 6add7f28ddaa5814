"""The line of the port that a departure belongs to, and the reference's line beside it."""

from .evidence import Cause, Evidence
from .operations import Operation, SourceLine

_OF_THE_PRODUCER = ("residual", "factor", "bias", "term")
"""Missing behind the line that makes a tensor; anything else is missing where it is read."""


def port_line(evidence: Evidence, cause: Cause | None) -> SourceLine | None:
    """Where a reader would change the port."""
    if cause is not None and cause.lines:
        return cause.lines[0]
    cut, mine, operations = evidence.cut, evidence.mine, evidence.s.operations
    readers = [o for o in operations if o.call in cut.calls]
    if cut.kind == "insert":
        source = operations[evidence.s.root(cut.source)]
        if cause is not None and cause.kind.endswith(_OF_THE_PRODUCER):
            return shared_line(source, readers[:1]) or source.line
        return _same_line(readers) or readers[0].line
    if cut.kind == "operand":
        source = operations[evidence.s.root(cut.source)]
        if source.is_leaf:
            return readers[0].line if readers else mine.line
        return shared_line(mine, [source]) or mine.line
    if cut.kind == "bypass":
        after = [operations[i] for i in evidence.s.matching.port_readers.get(mine.index, ())]
        return shared_line(mine, after[:1]) or mine.line
    if cut.kind == "replace" and mine.from_tokens:
        first = (o for o in evidence.region if o.from_tokens and o.line is not None)
        return next((o.line for o in first), mine.line)
    return mine.line


def region_lines(operations: list[Operation], place: Operation) -> tuple[SourceLine, ...]:
    """The lines between common tensors and here, each once, in the order in which they ran."""
    lines = [o.line for o in operations if o.from_tokens == place.from_tokens and o.line]
    return tuple(dict.fromkeys([*lines, *([place.line] if place.line else [])]))


def shared_line(operation: Operation, others: list[Operation]) -> SourceLine | None:
    """The operation's line in the innermost function call that it shares with the others."""
    for frame, line in zip(operation.frames, operation.lines):
        if others and all(frame in other.frames for other in others):
            return line
    return None


def _same_line(operations: list[Operation]) -> SourceLine | None:
    """The innermost line that all of them were made at."""
    first, *others = operations
    for frame, line in zip(first.frames, first.lines):
        if all((frame, line) in zip(other.frames, other.lines) for other in others):
            return line
    return None
