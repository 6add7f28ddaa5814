"""The line of the port that a departure belongs to, and the reference's line beside it."""

from .evidence import Cause, Evidence
from .operations import Operation, SourceLine, shared_line
from .settings_in_source import where_assigned, where_built, where_set

_OF_THE_PRODUCER = ("residual", "factor", "bias", "term")
"""Missing behind the line that makes a tensor; anything else is missing where it is read."""


_NUMBERS = ("factor", "epsilon", "number", "base")
"""Causes that are a number of the port: where it is set, a reader would change it."""


def port_line(evidence: Evidence, cause: Cause | None) -> SourceLine | None:
    """Where a reader would change the port."""
    line = _line_that_computes(evidence, cause)
    if line is None or cause is None or cause.kind not in _NUMBERS:
        return line
    number, other = cause.facts["port"], cause.facts["reference"]
    found = where_set(line, number)
    if found is None and abs(number * other - 1) > 1e-6:  # not a factor by which the port divides
        found = where_assigned(line, number, evidence.s.port.model)
    if found is None and cause.kind == "epsilon" and evidence.mine.part_of:
        found = where_built(line)
    return found or line


def _line_that_computes(evidence: Evidence, cause: Cause | None) -> SourceLine | None:
    if cause is not None and cause.lines:
        return cause.lines[0]
    cut, mine, operations = evidence.cut, evidence.mine, evidence.s.operations
    readers = [o for o in operations if o.call in cut.calls]
    missing = cause is not None and cause.kind.startswith("missing")
    if cut.kind == "insert" or (cut.kind == "operand" and missing and readers):
        source = operations[evidence.s.root(cut.source)]
        if cause is not None and cause.kind.endswith(_OF_THE_PRODUCER):
            source = _first_with_its_values(operations, source)
            behind = _readers(evidence, source.index)
            return shared_line(source, (behind or readers)[:1]) or source.line
        return _same_line(readers) or readers[0].line
    if cut.kind == "operand":
        source = operations[evidence.s.root(cut.source)]
        if source.is_leaf:
            return readers[0].line if readers else mine.line
        return shared_line(mine, [source]) or mine.line
    after = _readers(evidence, mine.index)
    if cut.kind == "bypass":
        return shared_line(mine, after[:1]) or mine.line
    if cause is not None and cause.kind in ("missing_residual", "missing_term"):
        return shared_line(mine, after[:1]) or mine.line
    if cut.kind == "replace" and mine.from_tokens:
        first = (o for o in evidence.region if o.from_tokens and o.line is not None)
        return next((o.line for o in first), mine.line)
    return mine.line


def _readers(evidence: Evidence, index: int) -> list[Operation]:
    """What computes with a tensor, or with another view of it."""
    found: list[Operation] = []
    for i in evidence.s.matching.port_readers.get(index, ()):
        reader = evidence.s.operations[i]
        found += _readers(evidence, i) if reader.reorders else [reader]
    return found


def _first_with_its_values(operations: list[Operation], found: Operation) -> Operation:
    """Behind additions of zeros and the like, the operation that made these numbers."""
    while not found.is_leaf:
        same = [i for i in found.inputs if operations[i].fingerprint == found.fingerprint]
        if not same:
            return found
        found = operations[same[0]]
    return found


def region_lines(operations: list[Operation], place: Operation) -> tuple[SourceLine, ...]:
    """The lines between common tensors and here, each once, in the order in which they ran."""
    lines = [o.line for o in operations if o.from_tokens == place.from_tokens and o.line]
    return tuple(dict.fromkeys([*lines, *([place.line] if place.line else [])]))


def _same_line(operations: list[Operation]) -> SourceLine | None:
    """The innermost line that all of them were made at."""
    first, *others = operations
    for frame, line in zip(first.frames, first.lines):
        if all((frame, line) in zip(other.frames, other.lines) for other in others):
            return line
    return None
