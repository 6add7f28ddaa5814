"""Finds the tensors that both programs have, and the first tensors of the port, on the way to the
output, that the reference does not have."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from .fingerprints import FingerprintIndex, distance
from .operations import Operation, consumers, root
from .recorded import Recording
from .sides import Role

# Sums in another order differ by this much in double precision.
_EXACT = 1e-9
# How many times the noise of single precision counts as equal, and the noise where none is known.
_TIMES_NOISE = 8
_USUAL_NOISE = 1e-7


def side_by_side(one: Recording, other: Recording) -> Iterator[tuple[Operation, Operation | None]]:
    """Pair each operation of a run with the same operation of a run in another precision, which may
    have fewer or more casts."""
    seen: Counter[object] = Counter()
    found: dict[object, Operation] = {}
    for operation in other.operations:
        found[operation.key, seen[operation.key]] = operation
        seen[operation.key] += 1
    seen.clear()
    for operation in one.operations:
        yield operation, found.get((operation.key, seen[operation.key]))
        seen[operation.key] += 1


def add_noise(recording: Recording, single: Recording) -> float:
    """Record at each operation how far the run in single precision is from the run in double
    precision, and return the largest difference of the logits, as a share of their size."""
    for operation, other in side_by_side(recording, single):
        before = max((recording.operations[i].noise for i in operation.inputs), default=0.0)
        if other is None or other.fingerprint is None or operation.fingerprint is None:
            operation.noise = max(before, _USUAL_NOISE)
        else:
            noise = distance(operation.fingerprint, other.fingerprint)
            # A mask that overflows in one precision only says nothing about rounding.
            operation.noise = noise if noise < 1e-2 else max(before, _USUAL_NOISE)
    assert single.logits is not None and recording.logits is not None
    size = float(recording.logits.abs().max().clamp(min=1e-30))
    return float((single.logits.double() - recording.logits).abs().max()) / size


@dataclass
class Equal:
    """The counterpart of a tensor in the other program, with the distance between the two."""

    index: int
    distance: float


class Matching:
    """The tensors that a run of the reference and a run of the port have in common, in both
    directions."""

    def __init__(self, reference: Recording, port: Recording) -> None:
        self.reference, self.port = reference, port
        self._index = _Lookup(reference)
        self.of_port = self._index.equals(port.operations)
        self.of_reference = _Lookup(port).equals(reference.operations)
        self._parts: dict[tuple[int, int], int] = {}
        self.n_parts: dict[int, int] = {}
        """For each part of a tensor of the reference, the number of parts into which it was
        divided."""
        self._in_parts = self._known_in_parts()
        self.port_readers = consumers(port.operations)
        self.reference_readers = consumers(reference.operations)

    def equals(self, operations: Iterable[Operation]) -> dict[int, Equal]:
        """Return the counterparts of the operations of another run of the port."""
        return self._index.equals(operations)

    def knows(self, index: int) -> bool:
        """Tell whether the reference has this tensor of the port."""
        return index in self.of_port or self.port.operations[index].fingerprint is None

    def is_used(self, index: int) -> bool:
        """Tell whether the port has this tensor of the reference, or all of its parts."""
        operations = self.reference.operations
        if index in self.of_reference or operations[index].fingerprint is None:
            return True
        return root(operations, index) in self._in_parts

    def _known_in_parts(self) -> set[int]:
        """Return the tensors of the reference that a loop of the port computes part by part."""
        operations = self.reference.operations
        found: set[int] = set()
        ways: dict[object, list[Operation]] = {}
        for operation in operations:
            if operation.nth is not None:
                ways.setdefault((operation.inputs[0], operation.dims[0]), []).append(operation)
        for parts in ways.values():
            whole = root(operations, parts[0].inputs[0])
            self.n_parts |= dict.fromkeys((part.index for part in parts), len(parts))
            self._parts |= {(whole, n): part.index for n, part in enumerate(parts)}
            if all(part.index in self.of_reference for part in parts):
                found.add(whole)
        return found

    def whole(self, operation: Operation) -> Operation:
        """If this operation is a part of a result of the reference, return the operation that made
        the whole; otherwise return the operation itself."""
        if operation.nth is None:
            return operation
        operations = self.reference.operations
        return operations[root(operations, operation.inputs[0])]

    def count_parts(self, index: int) -> int:
        """Return the number of parts into which a tensor of the reference was divided; 0 if it was
        not divided."""
        return self.n_parts.get(self.part(index, 0), 0)

    def part(self, index: int, nth: int) -> int:
        """Return the n-th part of a tensor of the reference, or the tensor itself if it has no
        parts."""
        return self._parts.get((root(self.reference.operations, index), nth), index)

    def forget_outputs(self) -> None:
        """Count the output of each program, and the tensors of which it is a view, as unknown."""
        for recording, equals in ((self.port, self.of_port), (self.reference, self.of_reference)):
            index = recording.output
            while index is not None:
                equals.pop(index, None)
                operation = recording.operations[index]
                index = operation.inputs[0] if operation.reorders and operation.inputs else None

    def port_frontier(self) -> list[int]:
        """Return the port's operations that read known tensors and have an unknown result, on the
        way to the output, in the order in which they ran."""
        return _frontier(self.port, self.knows)[0]

    def joins(self, side: Role) -> list[int]:
        """Return computed tensors through which every unknown tensor passes on its way to the
        output."""
        recording = self.port if side == "port" else self.reference
        frontier, way = _frontier(recording, self.knows if side == "port" else self.is_used)
        readers = self.port_readers if side == "port" else self.reference_readers
        found, furthest = [], frontier[-1]
        for index in sorted(way):
            operation = recording.operations[index]
            if index >= furthest and not (operation.reorders or operation.is_leaf):
                found.append(index)
            furthest = max([furthest, *(r for r in readers.get(index, ()) if r in way)])
        return found

    def reference_frontier(self) -> list[int]:
        """Return the operations that the reference computes directly from common tensors."""
        return _frontier(self.reference, self.is_used)[0]


def loops(matching: Matching) -> frozenset[tuple[int, int]]:
    """Find places where the port has no counterpart because it computes in a loop what the
    reference computes at once. Returns, for each such result of the reference, its number of
    elements and the number of parts into which the port divides it. In a loop, the same lines make
    tensors of the same shape several times."""
    ours, theirs = matching.port.operations, matching.reference.operations
    unknown = [o for o in ours if o.from_tokens and not matching.knows(o.index)]
    times = Counter((o.lines, o.name, o.shape) for o in unknown if not o.reorders)
    sizes = {(math.prod(shape), n) for (_, _, shape), n in times.items() if n > 1}
    found: set[tuple[int, int]] = set()
    for shape in {o.shape for o in theirs if o.from_tokens}:
        count = math.prod(shape)
        for n in set(shape) - {1}:
            if any(size * n == count and many % n == 0 for size, many in sizes):
                found.add((count, n))
    return frozenset(found)


class _Lookup:
    def __init__(self, recording: Recording) -> None:
        self.operations = recording.operations
        prints = {o.index: o.fingerprint for o in self.operations if o.fingerprint is not None}
        self.index = FingerprintIndex(prints)
        self.noise = max((o.noise for o in self.operations), default=0.0)

    def equals(self, operations: Iterable[Operation]) -> dict[int, Equal]:
        found: dict[int, Equal] = {}
        known: dict[int, Equal | None] = {}
        rounded: set[int] = set()
        # A constant that only one of the programs has was computed in another way (two tables added
        # to one, cosines and sines as complex numbers), and stored in single precision. Whole
        # numbers and masks are exact there.
        foreign: set[int] = set()
        for operation in operations:
            if rounded.intersection(operation.inputs) or foreign.intersection(operation.inputs):
                operation.rounded = True
            wanted = operation.fingerprint
            if wanted is not None:
                # Views share the fingerprint of what they are views of.
                if id(wanted) not in known:
                    known[id(wanted)] = self._equal(operation)
                equal = known[id(wanted)]
                if equal is not None:
                    found[operation.index] = equal
                    operation.rounded |= equal.distance > _EXACT
            if operation.rounded:
                rounded.add(operation.index)
            is_constant = not operation.from_tokens and not operation.is_whole
            if wanted is not None and operation.index not in found and is_constant:
                foreign.add(operation.index)
        return found

    def _equal(self, operation: Operation) -> Equal | None:
        """Return the equal of an operation. Stored tables, and what depends on them, may be
        rounded, since tables are stored in single precision; all other tensors must be equal in
        double precision."""
        wanted = operation.fingerprint
        assert wanted is not None
        rounds = operation.rounded or not operation.from_tokens
        widest = _TIMES_NOISE * max(self.noise, operation.noise, _USUAL_NOISE) if rounds else 0.0
        best: Equal | None = None
        least = 1.0
        for place, apart in self.index.near(wanted, max(widest, _EXACT)):
            other = self.operations[place]
            noise = max(other.noise, operation.noise, _USUAL_NOISE) if rounds else 0.0
            excess = apart / max(_TIMES_NOISE * noise, _EXACT)
            if operation.from_tokens and not other.from_tokens:
                continue
            count = other.fingerprint.count if other.fingerprint is not None else 0
            if count == 0 or (count % wanted.count and wanted.count % count):
                continue
            if excess < least or (excess == least and best is None):
                best, least = Equal(place, apart), excess
        return best


def _frontier(recording: Recording, is_known: Callable[[int], bool]) -> tuple[list[int], set[int]]:
    """Return the first unknown operations, and all unknown operations between them and the
    output."""
    assert recording.output is not None
    todo, seen, found = [recording.output], set[int](), []
    while todo:
        index = todo.pop()
        if index in seen:
            continue
        seen.add(index)
        sources = recording.operations[index].inputs
        unknown = [i for i in sources if recording.operations[i].from_tokens and not is_known(i)]
        todo += unknown
        if not unknown:
            found.append(index)
    return sorted(found), seen
