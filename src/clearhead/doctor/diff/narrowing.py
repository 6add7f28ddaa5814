"""From a place where the reference's value restores what follows to the narrowest one: an operation
that, given what the reference's operation reads, computes what the reference does, is not to blame;
what it reads is."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice, pairwise, product

from torch import Tensor

from ..form import CALL_ERRORS
from .fingerprints import distance, fingerprint
from .layouts import aligned, close, layouts
from .operations import Operation
from .recording import Swap
from .replaying import CannotReplayError, ChangedValues, Replay
from .substituting import Cut, Substitution, root

# Sums in another order differ by this much in double precision; tables may be rounded.
_EXACT = 1e-9
_ROUNDED = 1e-6
_DEPTH = 12
_COMBINATIONS = 8
_VIEWS = (
    "view", "_unsafe_view", "reshape", "clone", "contiguous", "_to_copy", "to", "alias", "detach",
    "unsqueeze", "squeeze", "flatten", "unflatten", "_reshape_alias",
)  # fmt: skip
_COMMUTES = ("add", "mul", "add_", "mul_")


def narrowed(substitution: Substitution, cut: Cut, depth: int = _DEPTH) -> list[Cut]:
    """The cuts that explain this one; itself, if nothing narrower does."""
    if cut.kind == "replace" and depth:
        term = _one_term(substitution, cut)
        if term is not None:
            return _behind(substitution, *term, depth)
        inputs = _what_it_reads(substitution, cut)
        if inputs is not None and _is_alike(substitution, cut, inputs):
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
            different = [
                (i, j, value)
                for (i, j), value in zip(pairs, values)
                if not close(own[i], value, near[i])
            ]
            # Without another input nothing would be explained: a square tensor that is turned round
            # has the fingerprint that it should have.
            if different and _computes_the_same(s, cut, [i for i, _ in pairs], values):
                return different
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


def _one_term(s: Substitution, cut: Cut) -> tuple[Cut, int, int, Tensor] | None:
    """Sums have no order: of the terms of both, the only ones without an equal, if with the
    reference's the sums are equal. The sum that reads the port's, both terms, and the value."""
    ours = _terms(s.operations, s.matching.knows, cut.place)
    theirs = _terms(s.theirs, s.matching.is_used, root(s.theirs, cut.reference))
    if len(ours) < 3 or len(ours) != len(theirs):
        return None
    left, others = list(ours), [j for _, j in theirs]
    for term in ours:
        equal = next((j for j in others if _are_equal(s.operations[term[1]], s.theirs[j])), None)
        if equal is not None:
            left.remove(term)
            others.remove(equal)
    if len(left) != 1:
        return None
    (reader, i), j = left[0], others[0]
    place = replace(cut, place=reader)
    for value in list(layouts(s.reference.values({j})[j], s.operations[i].shape))[:4]:
        swap = Swap(i, value, frozenset({s.operations[reader].call}))
        if _gives(s, cut, (swap,)):
            return place, i, j, value
    return None


def _are_equal(mine: Operation, theirs: Operation) -> bool:
    one, other = mine.fingerprint, theirs.fingerprint
    near = _tolerance(mine, theirs)
    return one is not None and other is not None and distance(one, other) <= near


def _terms(
    operations: list[Operation], is_known: Callable[[int], bool], index: int
) -> list[tuple[int, int]]:
    """What a chain of unknown sums adds up, each with the sum that reads it."""
    found: list[tuple[int, int]] = []
    for i in operations[index].inputs if operations[index].name in ("add", "add_") else ():
        inner = root(operations, i)
        if operations[inner].name in ("add", "add_") and not is_known(inner):
            behind = _terms(operations, is_known, inner)
            if len(behind) > 1 and all(operations[t].from_tokens for _, t in behind):
                found += behind
                continue
        found.append((index, i))
    return found


def _is_alike(s: Substitution, cut: Cut, inputs: list[tuple[int, int, Tensor]]) -> bool:
    """Where several inputs differ, and one of them is a tensor that the port has elsewhere, the two
    compute the same kind of thing in other steps: a tanh by exponentials, say. Where a term of a
    sum is a term of the reference's as well, the sums are in another order."""
    if len(inputs) == 1:
        return True
    if s.operations[cut.place].name in ("add", "add_"):
        return not any(s.matching.knows(i) and s.matching.is_used(j) for i, j, _ in inputs)
    return not any(not s.matching.knows(i) and s.matching.is_used(j) for i, j, _ in inputs)


def _tolerance(mine: Operation, theirs: Operation) -> float:
    return _ROUNDED if mine.rounded or theirs.rounded else _EXACT


def _choices(own: Tensor, other: Tensor, tolerance: float) -> list[Tensor]:
    equal = aligned(own, other, tolerance)
    others = list(layouts(other, tuple(own.shape)))[:4]
    if equal is None:
        return others
    # A square table that is equal when turned round may be the wrong way round.
    turned = own.shape == other.shape and not close(own, other, tolerance)
    return [equal, *others[:1]] if turned else [equal]


def _computes_the_same(
    s: Substitution, cut: Cut, sources: list[int], values: tuple[Tensor, ...]
) -> bool:
    calls = frozenset({s.operations[cut.place].call})
    return _gives(s, cut, tuple(Swap(i, value, calls) for i, value in zip(sources, values)))


def _gives(s: Substitution, cut: Cut, swaps: tuple[Swap, ...]) -> bool:
    """Whether the port's operation gives the reference's result with other inputs."""
    mine, theirs = s.operations[cut.place], s.theirs[cut.reference]
    replay = s.replay
    if mine.call not in replay.calls:  # before the first departure, where all seemed right
        replay = Replay(s.port, s.matching.port, [swap.source for swap in swaps], mine.index)
    try:
        results = replay.change(ChangedValues(swaps=swaps), stop_after=mine.index)
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
            if operation.from_tokens and depth and _only_views(s, source, place):
                # A product of swapped factors is turned round, and each factor is another tensor.
                made = Cut("replace", place, theirs, value.reshape(operation.shape))
                behind = narrowed(s, replace(made, score=cut.score), depth - 1)
                if all(c.kind == "operand" for c in behind):
                    return behind
            return [_out_of_order(s, cut, source, index, value)]
        return [Cut("operand", mine.index, index, value, source, calls, cut.score)]
    if operation.is_leaf:
        readers = frozenset(o.call for o in s.operations if place in o.inputs)
        fitting = list(layouts(s.reference.values({theirs})[theirs], operation.shape))
        if not fitting:
            return [Cut("operand", mine.index, index, value, source, calls, cut.score)]
        return [Cut("operand", place, theirs, fitting[0], place, readers, cut.score)]
    best: Cut | None = None
    others = list(layouts(s.reference.values({theirs})[theirs], operation.shape))[:4]
    if _only_views(s, source, place):
        others = [value.reshape(operation.shape)]
    for layout in others:
        tried = s.scored(s.at(operation, theirs, layout))
        if best is None or tried.score > best.score:
            best = tried
    # A value in another layout than the port's would be a mistake of its own.
    if best is None or (best.score <= 0 and len(others) > 1):
        return [Cut("operand", mine.index, index, value, source, calls, cut.score)]
    return narrowed(s, best, depth - 1)


def _only_views(s: Substitution, source: int, place: int) -> bool:
    """Whether a tensor has the elements of another in the same order, in another shape."""
    while source != place:
        operation = s.operations[source]
        if operation.name not in _VIEWS or operation.dtype.is_complex:
            return False
        source = operation.inputs[0]
    return not s.operations[place].dtype.is_complex


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
