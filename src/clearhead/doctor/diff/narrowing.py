"""From a place where the reference's value restores what follows to the narrowest one: an operation
that, given what the reference's operation reads, computes what the reference does, is not to blame;
what it reads is."""

from collections.abc import Iterator
from itertools import islice, pairwise, product

from torch import Tensor

from ..form import CALL_ERRORS
from .fingerprints import distance, fingerprint
from .layouts import aligned, close, layouts
from .operations import Operation
from .recording import Swap
from .replaying import CannotReplayError, ChangedValues
from .substituting import Cut, Substitution, root

# Sums in another order differ by this much in double precision; tables may be rounded.
_EXACT = 1e-9
_ROUNDED = 1e-6
_DEPTH = 12
_COMBINATIONS = 8
_COMMUTES = ("add", "mul", "add_", "mul_")


def narrowed(substitution: Substitution, cut: Cut, depth: int = _DEPTH) -> list[Cut]:
    """The cuts that explain this one; itself, if nothing narrower does."""
    if cut.kind == "replace" and depth:
        inputs = _what_it_reads(substitution, cut)
        if inputs is not None and _is_alike(substitution, inputs):
            found = [c for pair in inputs for c in _behind(substitution, cut, *pair, depth)]
            return list({(c.place, c.source, c.calls): c for c in found}.values()) or [cut]
    return [cut]


def _what_it_reads(s: Substitution, cut: Cut) -> list[tuple[int, int, Tensor]] | None:
    """Inputs of the port's operation that are not the reference's, if with the reference's inputs
    the two results are equal: of the port, of the reference, and the value for the port."""
    mine, theirs = s.operations[cut.place], s.theirs[root(s.theirs, cut.reference)]
    for pairs in _pairings(s, mine, theirs):
        own = {i: s.replay.value(i) for i, _ in pairs}
        other = s.reference.values({j for _, j in pairs})
        near = {i: _tolerance(s.operations[i], s.theirs[j]) for i, j in pairs}
        choices = [_choices(own[i], other[j], near[i]) for i, j in pairs]
        for values in islice(product(*choices), _COMBINATIONS):
            if _computes_the_same(s, cut, [i for i, _ in pairs], values):
                return [
                    (i, j, value)
                    for (i, j), value in zip(pairs, values)
                    if not close(own[i], value, near[i])
                ]
    return None


def _pairings(
    s: Substitution, mine: Operation, theirs: Operation
) -> Iterator[list[tuple[int, int]]]:
    """Which input of the one may stand for which of the other: by their order; or only those that
    have no equal, where the two operations are of different kinds."""
    if mine.name == theirs.name and len(mine.inputs) == len(theirs.inputs):
        yield list(zip(mine.inputs, theirs.inputs))
        if mine.name in _COMMUTES and len(theirs.inputs) == 2:
            yield list(zip(mine.inputs, theirs.inputs[::-1]))
    ours = [i for i in mine.inputs if not s.matching.knows(i)]
    others = [j for j in theirs.inputs if not s.matching.is_used(j)]
    if mine.from_tokens:
        ours = [i for i in ours if s.operations[i].from_tokens]
        others = [j for j in others if s.theirs[j].from_tokens]
    if mine.name != theirs.name and ours and len(ours) == len(others):
        yield list(zip(ours, others))
        if len(ours) == 2:
            yield list(zip(ours, others[::-1]))


def _is_alike(s: Substitution, inputs: list[tuple[int, int, Tensor]]) -> bool:
    """Where several inputs differ, and one of them is a tensor that the port has elsewhere, the two
    compute the same kind of thing in other steps: a tanh by exponentials, say."""
    mixed = [not s.matching.knows(i) and s.matching.is_used(j) for i, j, _ in inputs]
    return len(inputs) == 1 or not any(mixed)


def _tolerance(mine: Operation, theirs: Operation) -> float:
    return _ROUNDED if mine.rounded or theirs.rounded else _EXACT


def _choices(own: Tensor, other: Tensor, tolerance: float) -> list[Tensor]:
    equal = aligned(own, other, tolerance)
    return [equal] if equal is not None else list(layouts(other, tuple(own.shape)))[:4]


def _computes_the_same(
    s: Substitution, cut: Cut, sources: list[int], values: tuple[Tensor, ...]
) -> bool:
    mine, theirs = s.operations[cut.place], s.theirs[cut.reference]
    calls = frozenset({mine.call})
    swaps = tuple(Swap(i, value, calls) for i, value in zip(sources, values))
    try:
        results = s.replay.change(ChangedValues(swaps=swaps), stop_after=mine.index)
    except (CannotReplayError, *CALL_ERRORS):
        return False
    wanted = theirs.fingerprint
    if wanted is None or mine.index not in results:
        return False
    bound = 8 * max(mine.noise, theirs.noise) if mine.rounded or theirs.rounded else 0.0
    return distance(fingerprint(results[mine.index]), wanted) <= max(bound, 10 * _EXACT)


def _behind(
    s: Substitution, cut: Cut, source: int, index: int, value: Tensor, depth: int
) -> list[Cut]:
    """What is to blame for one input that is not the reference's."""
    mine, theirs = s.operations[cut.place], root(s.theirs, index)
    place = s.root(source)
    operation = s.operations[place]
    calls = frozenset({mine.call})
    if s.matching.knows(place):
        ours, others = operation.fingerprint, s.theirs[theirs].fingerprint
        near = _tolerance(operation, s.theirs[theirs])
        if ours is not None and others is not None and distance(ours, others) < near:
            return [_out_of_order(s, cut, source, index, value)]
        return [Cut("operand", mine.index, index, value, source, calls, cut.score)]
    if operation.is_leaf:
        readers = frozenset(o.call for o in s.operations if place in o.inputs)
        fitting = list(layouts(s.reference.values({theirs})[theirs], operation.shape))
        if not fitting:
            return [Cut("operand", mine.index, index, value, source, calls, cut.score)]
        return [Cut("operand", place, theirs, fitting[0], place, readers, cut.score)]
    best: Cut | None = None
    for layout in list(layouts(s.reference.values({theirs})[theirs], operation.shape))[:4]:
        tried = s.scored(s.at(operation, theirs, layout))
        if best is None or tried.score > best.score:
            best = tried
    if best is None:
        return [Cut("operand", mine.index, index, value, source, calls, cut.score)]
    return narrowed(s, best, depth - 1)


def _out_of_order(s: Substitution, cut: Cut, source: int, index: int, value: Tensor) -> Cut:
    """The elements are the reference's: the operation on the way here that put them into another
    order is the first whose result no layout makes equal."""
    chain = [source]
    while s.operations[chain[-1]].reorders and s.operations[chain[-1]].inputs:
        chain.append(s.operations[chain[-1]].inputs[0])
    theirs = [index]
    while s.theirs[theirs[-1]].reorders and s.theirs[theirs[-1]].inputs:
        theirs.append(s.theirs[theirs[-1]].inputs[0])
    own = {i: s.replay.value(i) for i in chain}
    others = s.reference.values(set(theirs))
    culprit = chain[-1]
    for here, before in pairwise(chain):
        same = (aligned(own[before], o, _ROUNDED, strict=True) for o in others.values())
        if any(layout is not None for layout in same):
            culprit = here
            break
    calls = frozenset({s.operations[cut.place].call})
    return Cut("order", culprit, index, value, source, calls, cut.score)
