"""The line of the port that a departure belongs to, and the reference's line beside it."""

from .evidence import Cause, Evidence
from .operations import Operation, SourceLine, root, shared_line
from .settings_in_source import (
    where_assigned,
    where_built,
    where_default,
    where_passed_on,
    where_repeated,
    where_returned,
    where_set,
)

_OF_THE_PRODUCER = ("residual", "factor", "bias", "term", "function")
"""Missing behind the line that makes a tensor; anything else is missing where it is read."""


_TERMS = ("residual", "bias", "term")

_NUMBERS = ("factor", "epsilon", "number", "base")
"""Causes that are a number of the port: where it is set, a reader would change it."""


def port_line(evidence: Evidence, cause: Cause | None) -> SourceLine | None:
    """Where a reader would change the port."""
    line = _line_that_computes(evidence, cause)
    if line is None:
        return None
    if cause is not None and cause.kind == "weights" and _serves_twice(evidence):
        return where_repeated(line.file) or line
    if cause is None or cause.kind not in _NUMBERS:
        return _caller_to_blame(evidence, line)
    number, other = cause.facts["port"], cause.facts["reference"]
    if abs(number) == 1:  # nobody's setting
        return line
    every = [line, *(o.line for o in evidence.region if o.line is not None)]
    files = {other.file: other for other in reversed(every)}  # the line's own file first
    found = next(filter(None, (where_set(files[f], number) for f in reversed(files))), None)
    if found is None and abs(number * other - 1) > 1e-6:  # not a factor by which the port divides
        found = where_assigned(line, number, evidence.s.port.model) or where_default(line)
    if found is None and cause.kind == "epsilon" and evidence.mine.part_of:
        found = where_built(line)
    return found or line


def _serves_twice(evidence: Evidence) -> bool:
    """Whether the port holds a parameter in several places: one object serves as several layers."""
    label = evidence.s.operations[evidence.s.root(evidence.at)].label
    model = evidence.s.port.model
    held = list(model.named_parameters(remove_duplicate=False))
    tensor = next((parameter for name, parameter in held if name == label), None)
    return tensor is not None and sum(parameter is tensor for _, parameter in held) > 1


def _line_that_computes(evidence: Evidence, cause: Cause | None) -> SourceLine | None:
    if cause is not None and cause.lines:
        return cause.lines[0]
    if cause is not None and cause.kind == "positions":
        counted = _where_counted(evidence)
        if counted is not None:
            return counted
    cut, mine, operations = evidence.cut, evidence.mine, evidence.s.operations
    readers = [o for o in operations if o.call in cut.calls]
    missing = cause is not None and cause.kind.startswith("missing")
    if cut.kind == "insert" or (cut.kind == "operand" and missing and readers):
        source = operations[evidence.s.root(cut.source)]
        if cause is not None and cause.kind.endswith(_OF_THE_PRODUCER):
            if cause.kind == "missing_bias" and source.name in ("mm", "bmm"):
                return source.line
            if cause.kind.endswith(_TERMS) and _all_add(readers):
                return _same_line(readers) or readers[0].line  # one summand more
            if cause.kind == "missing_factor" and _is_where_it_is_read(evidence):
                read = [
                    r for o in readers for r in (_readers(evidence, o.index) if o.reorders else [o])
                ]
                return _same_line(read) or read[0].line
            source = _first_with_its_values(operations, source)
            if cause.kind == "missing_bias":
                return source.line  # it belongs to the layer whose weights made the tensor
            behind = _readers(evidence, source.index)
            return shared_line(source, (behind or readers)[:1]) or source.line
        # A cast or a view in the line that makes a tensor does not read it.
        behind = [
            r
            for o in readers
            for r in (_readers(evidence, o.index) if _is_made_there(o, source) else [o])
        ]
        readers = behind or readers
        passed = where_passed_on(source, readers)
        return passed or _first_reading(evidence, source) or _where_read(source, readers)
    if cut.kind == "operand":
        source = operations[evidence.s.root(cut.source)]
        if source.is_leaf:
            return readers[0].line if readers else mine.line
        return shared_line(mine, [source]) or mine.line
    after = _readers(evidence, mine.index)
    if not after and cause is not None and cause.kind in ("missing_function", "missing_norm"):
        return where_returned(mine.line) or mine.line
    if cut.kind == "bypass":
        return shared_line(mine, after[:1]) or mine.line
    if cause is not None and cause.kind in ("missing_residual", "missing_term"):
        return shared_line(mine, after[:1]) or mine.line
    if cut.kind == "replace" and mine.from_tokens:
        every = [o for o in evidence.region if o.from_tokens and o.line is not None]
        # Whole numbers choose rows or count them, and the reference may choose in another way.
        reals = [o for o in every if o.dtype.is_floating_point]
        first = reals if cause is None and mine.dtype.is_floating_point else every
        return next((o.line for o in first), mine.line)
    return mine.line or (readers[0].line if readers else None)  # a parameter is to blame where read


def _is_where_it_is_read(evidence: Evidence) -> bool:
    """Whether the reference computes the value on the line that reads it, and not on the line that
    makes what it is computed from."""
    theirs, matching = evidence.s.theirs, evidence.s.matching
    here = theirs[root(theirs, evidence.cut.reference)]
    made = [theirs[root(theirs, i)] for i in here.inputs if theirs[i].from_tokens]
    readers = [theirs[i] for i in matching.reference_readers.get(here.index, ())]
    line = shared_line(here, made)
    return (
        bool(made and readers)
        and all(
            line is not None and line == shared_line(here, [o]) == shared_line(o, [here])
            for o in readers
        )
        and all(shared_line(o, [here]) != line for o in made)
    )


def _is_made_there(reader: Operation, source: Operation) -> bool:
    return reader.reorders and reader.line == source.line


def _where_read(source: Operation, readers: list[Operation]) -> SourceLine | None:
    """The innermost line at which all read a tensor; where several lines of the function that makes
    it do, the line that makes it."""
    for frame, line in zip(source.frames, source.lines):
        if all(frame in reader.frames for reader in readers):
            read = {r.lines[r.frames.index(frame)] for r in readers}
            return line if len(read) > 1 else _same_line(readers)
    return _same_line(readers) or readers[0].line


def _all_add(operations: list[Operation]) -> bool:
    return all(o.name in ("add", "add_") for o in operations)


def _where_counted(evidence: Evidence) -> SourceLine | None:
    """The line that counts positions: the last one that makes different whole numbers for a
    table."""
    operations = evidence.s.operations
    made = [operations[index] for index in evidence.makers(evidence.at)]
    counted = [o for o in made if o.line is not None and o.counts and not o.reorders]
    counted = [o for o in counted if not o.dtype.is_floating_point or not o.from_tokens]
    places = evidence.own.shape[:-1] if evidence.own.dim() > 1 else evidence.own.shape
    counted = [o for o in counted if set(o.shape) & set(places)]
    return counted[-1].line if counted else None


def _caller_to_blame(evidence: Evidence, line: SourceLine) -> SourceLine:
    """A line that computes what it should where another one calls it is not to blame: the line that
    calls it here is."""
    s = evidence.s
    readers = [o for o in s.operations if o.call in evidence.cut.calls]
    behind = _readers(evidence, evidence.mine.index) if evidence.cut.kind == "insert" else []
    behind += [r for o in readers if o.reorders for r in _readers(evidence, o.index)]
    near = [evidence.mine, *readers, *behind, *reversed(evidence.region)]
    here = next((o for o in near if line in o.lines and not o.reorders), None)
    # Whose order is right, a fingerprint does not show.
    if here is None or evidence.cut.kind == "order":
        return line
    at = here.lines.index(line)
    calls = {call for swap in s.port.fixes.swaps for call in swap.calls or ()}
    fixed = [o for o in s.operations if o.call in calls or o.index in s.port.fixes.replace]
    wrong = {here.frames[at], *(frame for o in fixed for frame in o.frames[:1])}
    healthy = [
        o.lines
        for o in s.operations
        if not wrong.intersection(o.frames)
        and (o.name, o.from_tokens) == (here.name, here.from_tokens)
        and all(map(s.matching.knows, (o.index, *o.inputs)))
    ]
    for n in range(at, len(here.lines)):
        if not any(lines[: n + 1] == here.lines[: n + 1] for lines in healthy):
            return here.lines[n]
    # Each line is right somewhere, as in another layer: the first that is so for one caller only.
    for n in range(at, len(here.lines)):
        same = [lines for lines in healthy if lines[: n + 1] == here.lines[: n + 1]]
        if all(lines[n + 1 : n + 2] == here.lines[n + 1 : n + 2] for lines in same):
            return here.lines[n]
    return line


def _readers(evidence: Evidence, index: int) -> list[Operation]:
    """What computes with a tensor, or with another view of it."""
    found: list[Operation] = []
    for i in evidence.s.matching.port_readers.get(index, ()):
        reader = evidence.s.operations[i]
        found += _readers(evidence, i) if reader.reorders else [reader]
    return found


def _first_with_its_values(operations: list[Operation], found: Operation) -> Operation:
    """The operation that made these numbers, before additions of zeros and the like."""
    while not found.is_leaf:
        same = [i for i in found.inputs if operations[i].fingerprint == found.fingerprint]
        if found.selects:
            same = list(found.inputs[:1])  # a part: the whole was made elsewhere
        if not same or operations[same[0]].is_leaf:
            return found
        found = operations[same[0]]
    return found


def _first_reading(evidence: Evidence, source: Operation) -> SourceLine | None:
    """The line that first takes up a tensor on the way to an operation that reads a view of it."""
    index, line = evidence.cut.source, None
    while index != source.index and evidence.s.operations[index].inputs:
        line = evidence.s.operations[index].line
        index = evidence.s.operations[index].inputs[0]
    return None if line == source.line else line


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
