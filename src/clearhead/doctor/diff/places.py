"""Finds the line of the port to which a departure belongs, and the corresponding line of the
reference."""

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
"""Kinds of operations that are missing after the line that makes a tensor; all other kinds are
missing where the tensor is read."""

_TERMS = ("residual", "bias", "term")

_NUMBERS = ("factor", "epsilon", "number", "base")
"""Causes that are a number in the port. A reader would change the line that sets it."""


def port_line(evidence: Evidence, cause: Cause | None) -> SourceLine | None:
    """Return the line of the port that a reader would change."""
    line = _line_that_computes(evidence, cause)
    if line is None:
        return None
    if cause is not None and cause.kind == "weights" and _serves_twice(evidence):
        return where_repeated(line.file) or line
    if cause is None or cause.kind not in _NUMBERS:
        return _caller_to_blame(evidence, line)
    number, wanted = cause.facts["port"], cause.facts["reference"]
    if abs(number) == 1:  # nobody's setting
        return line
    every = [line, *(o.line for o in evidence.region if o.line is not None)]
    files = {in_file.file: in_file for in_file in reversed(every)}  # the line's own file first
    setting = next(filter(None, (where_set(files[f], number) for f in reversed(files))), None)
    if setting is None and abs(number * wanted - 1) > 1e-6:  # not a factor that the port divides by
        setting = where_assigned(line, number, evidence.s.port.model) or where_default(line)
    if setting is None and cause.kind == "epsilon" and evidence.mine.part_of:
        setting = where_built(line)
    return setting or line


def _serves_twice(evidence: Evidence) -> bool:
    """Tell whether the port holds a parameter in several places: one object serves as several
    layers."""
    label = evidence.s.operations[evidence.s.root(evidence.at)].label
    model = evidence.s.port.model
    held = list(model.named_parameters(remove_duplicate=False))
    tensor = next((parameter for name, parameter in held if name == label), None)
    return tensor is not None and sum(parameter is tensor for _, parameter in held) > 1


def _line_that_computes(evidence: Evidence, cause: Cause | None) -> SourceLine | None:
    kind = "" if cause is None else cause.kind
    if cause is not None and cause.lines:
        return cause.lines[0]
    if kind == "positions" and (counted := _where_counted(evidence)) is not None:
        return counted
    readers = [o for o in evidence.s.operations if o.call in evidence.cut.calls]
    is_missing = kind.startswith("missing")
    match evidence.cut.kind:
        case "insert":
            return _line_that_lacks(evidence, kind, readers)
        case "operand" if is_missing and readers:
            return _line_that_lacks(evidence, kind, readers)
        case "operand":
            return _line_that_reads_another(evidence, readers)
    return _line_of_the_result(evidence, kind, readers)


def _line_that_lacks(evidence: Evidence, kind: str, readers: list[Operation]) -> SourceLine | None:
    """If an operation is missing between a tensor and what reads it, return the line that makes the
    tensor, or the line that reads it."""
    source = evidence.s.operations[evidence.s.root(evidence.cut.source)]
    if not kind.endswith(_OF_THE_PRODUCER):
        return _line_that_takes_up(evidence, source, readers)
    if kind == "missing_bias" and source.name in ("mm", "bmm"):
        return source.line
    if kind.endswith(_TERMS) and all(o.name in ("add", "add_") for o in readers):
        return _same_line(readers) or readers[0].line  # one summand more
    if kind == "missing_factor" and _is_where_it_is_read(evidence):
        read = _behind_views(evidence, readers)
        return _same_line(read) or read[0].line
    source = _first_with_its_values(evidence.s.operations, source)
    if kind == "missing_bias":
        return source.line  # it belongs to the layer whose weights made the tensor
    behind = _readers(evidence, source.index) or readers
    return shared_line(source, behind[:1]) or source.line


def _line_that_takes_up(
    evidence: Evidence, source: Operation, readers: list[Operation]
) -> SourceLine | None:
    """Return the line that first reads a tensor."""
    # A cast or a view in the line that makes a tensor does not read it.
    readers = _behind_views(evidence, readers, beside=source) or readers
    passed = where_passed_on(source, readers)
    return passed or _first_reading(evidence, source) or _where_read(source, readers)


def _line_that_reads_another(evidence: Evidence, readers: list[Operation]) -> SourceLine | None:
    """If an operation reads another tensor, return the line that reads it if it is a leaf, or else
    the line at which the result and that tensor meet."""
    source = evidence.s.operations[evidence.s.root(evidence.cut.source)]
    if source.is_leaf:
        return readers[0].line if readers else evidence.mine.line
    return shared_line(evidence.mine, [source]) or evidence.mine.line


def _line_of_the_result(
    evidence: Evidence, kind: str, readers: list[Operation]
) -> SourceLine | None:
    """If a result is wrong or superfluous, return the line that makes it, or that first reads
    it."""
    cut, mine = evidence.cut, evidence.mine
    after = _readers(evidence, mine.index)
    if not after and kind in ("missing_function", "missing_norm"):
        return where_returned(mine.line) or mine.line
    if cut.kind == "bypass" or kind in ("missing_residual", "missing_term"):
        return shared_line(mine, after[:1]) or mine.line
    if cut.kind == "replace" and mine.from_tokens:
        every = [o for o in evidence.region if o.from_tokens and o.line is not None]
        # Whole numbers choose rows or count them, and the reference may choose in another way.
        reals = [o for o in every if o.dtype.is_floating_point]
        first = reals if not kind and mine.dtype.is_floating_point else every
        return next((o.line for o in first), mine.line)
    return mine.line or (readers[0].line if readers else None)  # a parameter is to blame where read


def _is_where_it_is_read(evidence: Evidence) -> bool:
    """Tell whether the reference computes the value on the line that reads it, and not on the line
    that makes its inputs."""
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


def _where_read(source: Operation, readers: list[Operation]) -> SourceLine | None:
    """Return the innermost line at which all readers read a tensor. If the function that makes the
    tensor reads it on several lines, return the line that makes it."""
    for frame, line in zip(source.frames, source.lines):
        if all(frame in reader.frames for reader in readers):
            read = {r.lines[r.frames.index(frame)] for r in readers}
            return line if len(read) > 1 else _same_line(readers)
    return _same_line(readers) or readers[0].line


def _where_counted(evidence: Evidence) -> SourceLine | None:
    """Return the line that counts positions: the last line that makes different whole numbers for a
    table."""
    operations = evidence.s.operations
    made = [operations[index] for index in evidence.makers(evidence.at)]
    counted = [o for o in made if o.line is not None and o.counts and not o.reorders]
    counted = [o for o in counted if not o.dtype.is_floating_point or not o.from_tokens]
    places = evidence.own.shape[:-1] if evidence.own.dim() > 1 else evidence.own.shape
    counted = [o for o in counted if set(o.shape) & set(places)]
    return counted[-1].line if counted else None


def _caller_to_blame(evidence: Evidence, line: SourceLine) -> SourceLine:
    """Return the line to blame for a call. A line that computes the right result for another caller
    is not to blame; the line that calls it here is."""
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
    """Return the operations that compute with a tensor, or with another view of it."""
    indices = evidence.s.matching.port_readers.get(index, ())
    return _behind_views(evidence, [evidence.s.operations[i] for i in indices])


def _behind_views(
    evidence: Evidence, readers: list[Operation], *, beside: Operation | None = None
) -> list[Operation]:
    """Return the readers, but replace each operation that only reorders by the readers of its
    result. With `beside`, replace only operations at the line of `beside`."""
    behind: list[Operation] = []
    for reader in readers:
        is_passed = reader.reorders and (beside is None or reader.line == beside.line)
        behind += _readers(evidence, reader.index) if is_passed else [reader]
    return behind


def _first_with_its_values(operations: list[Operation], maker: Operation) -> Operation:
    """Return the operation that first made these numbers, before additions of zeros and similar
    steps."""
    while not maker.is_leaf:
        same = [i for i in maker.inputs if operations[i].fingerprint == maker.fingerprint]
        if maker.selects:
            same = list(maker.inputs[:1])  # a part: the whole was made elsewhere
        if not same or operations[same[0]].is_leaf:
            return maker
        maker = operations[same[0]]
    return maker


def _first_reading(evidence: Evidence, source: Operation) -> SourceLine | None:
    """Return the line that first reads a tensor, on the way to an operation that reads a view of
    it."""
    index, line = evidence.cut.source, None
    while index != source.index and evidence.s.operations[index].inputs:
        line = evidence.s.operations[index].line
        index = evidence.s.operations[index].inputs[0]
    return None if line == source.line else line


def region_lines(operations: list[Operation], result: Operation) -> tuple[SourceLine, ...]:
    """Return the lines between common tensors and this place, each once, in the order in which they
    ran."""
    lines = [o.line for o in operations if o.from_tokens == result.from_tokens and o.line]
    return tuple(dict.fromkeys([*lines, *([result.line] if result.line else [])]))


def _same_line(operations: list[Operation]) -> SourceLine | None:
    """Return the innermost line at which all of the operations were made."""
    first, *others = operations
    for frame, line in zip(first.frames, first.lines):
        if all((frame, line) in zip(other.frames, other.lines) for other in others):
            return line
    return None
