"""Narrows a place where the reference's value restores the rest of the run. If the port's
operation, given the inputs of the reference's operation, computes the same as the reference, then
its inputs are to blame and not the operation."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice, pairwise, product

import torch
from torch import Tensor

from ..form import CALL_ERRORS
from .cuts import Cut
from .fingerprints import Fingerprint, distance, fingerprint
from .layouts import aligned, close, column_order, layouts
from .operations import Operation, root
from .recorded import Swap
from .replaying import CannotReplayError, ChangedValues, Replay
from .substituting import Substitution

# Sums in another order differ by this much in double precision; tables may be rounded.
_EXACT = 1e-9
_ROUNDED = 1e-6
_DEPTH = 12
_COMBINATIONS = 8
_COMMUTES = ("add", "mul", "add_", "mul_")
_PRODUCTS = ("mm", "bmm")
_JOINS = ("cat", "stack")


def narrowed(substitution: Substitution, cut: Cut, depth: int = _DEPTH) -> list[Cut]:
    """Return the cuts that explain this one, or the cut itself if nothing narrower does."""
    if cut.kind == "replace" and depth:
        terms = _wrong_terms(substitution, cut)
        if terms:
            return [c for term in terms for c in _behind(substitution, *term, depth)]
        inputs = _what_it_reads(substitution, cut)
        if inputs is not None and _is_alike(substitution, cut, inputs):
            behind = [c for pair in inputs for c in _behind(substitution, cut, *pair, depth)]
            return list({(c.index, c.source, c.calls): c for c in behind}.values()) or [cut]
    if cut.kind == "insert" and substitution.is_read_only_by(cut.calls, cut.source):
        behind = _other_operands(substitution, cut, cut.source, cut.reference, depth)
        return behind if _are_weights(substitution, behind) else [cut]
    return [cut]


def _other_operands(
    substitution: Substitution, cut: Cut, source: int, theirs: int, depth: int
) -> list[Cut]:
    """Return the operands that make a tensor differ. If the factors of a product are swapped, the
    product is transposed and each factor is another tensor. A tensor that is right elsewhere may be
    made here with the wrong weights."""
    maker = substitution.operations[substitution.root(source)]
    if not maker.from_tokens or maker.dtype.is_complex or not depth:
        return []
    if substitution.only_views(source, maker):
        fitting = [cut.value.reshape(maker.shape)]
    else:
        theirs = root(substitution.theirs, theirs)
        fitting = substitution.layouts(maker.index, theirs)[:1]
    if not fitting:
        return []
    made = Cut("replace", maker.index, theirs, fitting[0], score=cut.score)
    behind = narrowed(substitution, made, depth - 1)
    return behind if all(c.kind == "operand" for c in behind) else []


def _are_weights(substitution: Substitution, cuts: list[Cut]) -> bool:
    """Tell whether parameters are read in place of other parameters, and nothing else differs."""
    sources = [substitution.operations[substitution.root(cut.source)] for cut in cuts]
    return bool(sources) and all(source.name == "parameter" for source in sources)


def _is_at_hand(substitution: Substitution, cuts: list[Cut]) -> bool:
    """Tell whether one tensor is read in place of another, which the port has as well."""
    read = {substitution.root(cut.source) for cut in cuts}
    wanted = {root(substitution.theirs, cut.reference) for cut in cuts}
    if len(read) != 1 or len(wanted) != 1 or not substitution.operations[read.pop()].from_tokens:
        return False
    return wanted.pop() in substitution.matching.of_reference


def _what_it_reads(substitution: Substitution, cut: Cut) -> list[tuple[int, int, Tensor]] | None:
    """Return the inputs of the port's operation that differ from the reference's, if with the
    reference's inputs the two results are equal. Each is an input of the port, an input of the
    reference, and the value for the port."""
    mine, theirs = substitution.operations[cut.index], _behind_parts(substitution, cut.reference)
    for pairs in _pairings(substitution, mine, theirs):
        own = {i: substitution.replay.value(i) for i, _ in pairs}
        other = substitution.their_values({j for _, j in pairs})
        near = {i: _tolerance(substitution.operations[i], substitution.theirs[j]) for i, j in pairs}
        if mine.name in _PRODUCTS and len(pairs) == 2:
            other |= _in_own_order(pairs, own, other)
        choices = [_choices(substitution, i, j, other[j], near[i]) for i, j in pairs]
        for values in islice(product(*choices), _COMBINATIONS):
            different = [
                (i, j, value)
                for (i, j), value in zip(pairs, values)
                if not close(own[i], value, near[i])
            ]
            # Without another input nothing would be explained: a square tensor that is turned round
            # has the fingerprint that it should have.
            if different and _computes_the_same(substitution, cut, [i for i, _ in pairs], values):
                return different
    return None


def _behind_parts(substitution: Substitution, index: int) -> Operation:
    """Return the operation that made a tensor of the reference. If the tensor is a part, the
    operation reads the corresponding parts of its inputs."""
    maker = substitution.theirs[root(substitution.theirs, index)]
    if maker.nth is None:
        return maker
    whole = substitution.matching.whole(maker)
    return replace(
        whole, inputs=tuple(substitution.matching.part(i, maker.nth) for i in whole.inputs)
    )


def _pairings(
    substitution: Substitution, mine: Operation, theirs: Operation
) -> Iterator[list[tuple[int, int]]]:
    """Yield pairs of inputs that may correspond: in their order or, if the operations are of
    different kinds, only the inputs without an equal."""
    if mine.name == theirs.name and len(mine.inputs) == len(theirs.inputs):
        yield list(zip(mine.inputs, theirs.inputs))
        if mine.name in _COMMUTES and len(theirs.inputs) == 2:
            yield list(zip(mine.inputs, theirs.inputs[::-1]))
    if mine.name in _JOINS and len(mine.inputs) == substitution.matching.count_parts(theirs.index):
        yield [(i, substitution.matching.part(theirs.index, n)) for n, i in enumerate(mine.inputs)]
    ours = [i for i in mine.inputs if not substitution.matching.knows(i)]
    others = [j for j in theirs.inputs if not substitution.matching.is_used(j)]
    if mine.from_tokens:
        ours = [i for i in ours if substitution.operations[i].from_tokens]
        others = [j for j in others if substitution.theirs[j].from_tokens]
    if mine.name != theirs.name and ours and len(ours) == len(others):
        yield list(zip(ours, others))
        if len(ours) == 2:
            yield list(zip(ours, others[::-1]))


def _wrong_terms(substitution: Substitution, cut: Cut) -> list[tuple[Cut, int, int, Tensor]]:
    """Return the terms of two sums that differ, if the sums are equal with the reference's terms;
    the order of the terms does not matter. For each term: the sum that reads it, the term in each
    program, and the value for the port."""
    ours = _terms(substitution.operations, substitution.matching.knows, cut.index)
    theirs = _terms(
        substitution.theirs, substitution.matching.is_used, root(substitution.theirs, cut.reference)
    )
    if len(ours) < 3 or len(ours) != len(theirs):
        return []
    left, others = list(ours), [j for _, j in theirs]
    for term in ours:
        equal = next(
            (
                j
                for j in others
                if _are_equal(substitution.operations[term[1]], substitution.theirs[j])
            ),
            None,
        )
        if equal is not None:
            left.remove(term)
            others.remove(equal)
    if not left or len(left) == len(ours):
        return []
    candidates: list[tuple[Cut, int, int, Tensor]] = []
    for reader, i in left:
        fitting = [j for j in others if len(left) == 1 or _have_common_weights(substitution, i, j)]
        if len(fitting) != 1:
            return []
        others.remove(fitting[0])
        for layout in substitution.layouts(i, fitting[0]):
            candidates.append((replace(cut, index=reader), i, fitting[0], layout))
    terms = [[term for term in candidates if term[1] == i] for _, i in left]
    for chosen in islice(product(*terms), _COMBINATIONS):
        calls = {i: frozenset({substitution.operations[c.index].call}) for c, i, _, _ in chosen}
        if _gives(substitution, cut, tuple(Swap(i, value, calls[i]) for _, i, _, value in chosen)):
            return list(chosen)
    return []


def _have_common_weights(substitution: Substitution, i: int, j: int) -> bool:
    """Tell whether the last operations that made two terms use the same parameter."""
    ours, theirs = _last_weights(substitution.operations, i), _last_weights(substitution.theirs, j)
    return any(distance(one, other) <= _EXACT for one in ours for other in theirs)


def _last_weights(operations: list[Operation], index: int) -> list[Fingerprint]:
    todo = [root(operations, index)]
    for _ in range(_DEPTH):
        read = [operations[root(operations, i)] for made in todo for i in operations[made].inputs]
        weights = [o.fingerprint for o in read if o.name == "parameter"]
        if weights:
            return [numbers for numbers in weights if numbers is not None]
        todo = [o.index for o in read if o.from_tokens]
    return []


def _are_equal(mine: Operation, theirs: Operation) -> bool:
    one, other = mine.fingerprint, theirs.fingerprint
    near = _tolerance(mine, theirs)
    return one is not None and other is not None and distance(one, other) <= near


def _terms(
    operations: list[Operation], is_known: Callable[[int], bool], index: int
) -> list[tuple[int, int]]:
    """Return the terms of a chain of unknown sums, each with the sum that reads it."""
    terms: list[tuple[int, int]] = []
    for i in operations[index].inputs if operations[index].name in ("add", "add_") else ():
        inner = root(operations, i)
        if operations[inner].name in ("add", "add_") and not is_known(inner):
            behind = _terms(operations, is_known, inner)
            if len(behind) > 1 and all(operations[t].from_tokens for _, t in behind):
                terms += behind
                continue
        terms.append((index, i))
    return terms


def _is_alike(substitution: Substitution, cut: Cut, inputs: list[tuple[int, int, Tensor]]) -> bool:
    """Tell whether the two operations are the same kind of step. If several inputs differ and the
    port has one of them elsewhere, the two programs compute the same thing in other steps, such as
    a tanh by exponentials. If a term of the port's sum is a term of the reference's as well, the
    sums are in another order."""
    if len(inputs) == 1:
        return True
    if substitution.operations[cut.index].name in ("add", "add_"):
        terms = [(i, j) for i, j, _ in inputs if substitution.operations[i].from_tokens]
        return not any(
            substitution.matching.knows(i) and substitution.matching.is_used(j) for i, j in terms
        )
    return not any(
        not substitution.matching.knows(i) and substitution.matching.is_used(j)
        for i, j, _ in inputs
    )


def _tolerance(mine: Operation, theirs: Operation) -> float:
    return _ROUNDED if mine.rounded or theirs.rounded else _EXACT


def _in_own_order(
    pairs: list[tuple[int, int]], own: dict[int, Tensor], other: dict[int, Tensor]
) -> dict[int, Tensor]:
    """Return the reference's two factors in the port's order of the axis over which a product sums,
    because the result does not depend on an order that the factors share. If one factor is the
    reference's up to this order, the other factor is to blame for the rest."""
    (a, b), (c, d) = pairs
    if other[b].shape[-1] != other[d].shape[-2]:
        return {}
    orders = (column_order(own[a], other[b]), column_order(own[c].mT, other[d].mT))
    known = [order for order in orders if order is not None]
    if not known or any(torch.equal(order, order.sort().values) for order in known):
        return {}
    return {b: other[b][..., known[0]], d: other[d][..., known[0], :]}


def _choices(
    substitution: Substitution, i: int, j: int, other: Tensor, tolerance: float
) -> list[Tensor]:
    own = substitution.replay.value(i)
    others = substitution.layouts(i, j, other)
    equal = next((value for value in others if close(own, value, tolerance)), None)
    if equal is None:
        return others[:4]
    # A square table that is equal when turned round may be the wrong way round.
    turned = own.shape == other.shape and not close(own, other, tolerance)
    return [equal, *others[:1]] if turned else [equal]


def _computes_the_same(
    substitution: Substitution, cut: Cut, sources: list[int], values: tuple[Tensor, ...]
) -> bool:
    calls = frozenset({substitution.operations[cut.index].call})
    return _gives(
        substitution, cut, tuple(Swap(i, value, calls) for i, value in zip(sources, values))
    )


def _gives(substitution: Substitution, cut: Cut, swaps: tuple[Swap, ...]) -> bool:
    """Tell whether the port's operation gives the reference's result with other inputs."""
    mine, theirs = substitution.operations[cut.index], substitution.theirs[cut.reference]
    replay = substitution.replay
    if mine.call not in replay.calls:  # before the first departure, where all seemed right
        replay = Replay(
            substitution.port,
            substitution.matching.port,
            [swap.source for swap in swaps],
            mine.index,
        )
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
    substitution: Substitution, cut: Cut, source: int, index: int, value: Tensor, depth: int
) -> list[Cut]:
    """Return the cuts that explain one input that is not the reference's."""
    mine, theirs = substitution.operations[cut.index], root(substitution.theirs, index)
    maker = substitution.operations[substitution.root(source)]
    calls = frozenset({mine.call})
    if substitution.matching.knows(maker.index):
        ours, others = maker.fingerprint, substitution.theirs[theirs].fingerprint
        near = _tolerance(maker, substitution.theirs[theirs])
        same = ours is not None and others is not None and distance(ours, others) < near
        if same or substitution.is_read_only_by(calls, maker.index):
            behind = _other_operands(substitution, replace(cut, value=value), source, theirs, depth)
            # Whose order is right, only views show.
            if (
                _are_weights(substitution, behind)
                or _is_at_hand(substitution, behind)
                or (same and behind and substitution.only_views(source, maker))
            ):
                return behind
        if same:
            return [_out_of_order(substitution, cut, source, index, value)]
        return [Cut("operand", mine.index, index, value, source, calls, cut.score)]
    if maker.is_leaf:
        readers = frozenset(o.call for o in substitution.operations if maker.index in o.inputs)
        fitting = list(layouts(substitution.their_values({theirs})[theirs], maker.shape))
        if not fitting:
            return [Cut("operand", mine.index, index, value, source, calls, cut.score)]
        return [Cut("operand", maker.index, theirs, fitting[0], maker.index, readers, cut.score)]
    best: Cut | None = None
    others = substitution.layouts(maker.index, theirs)[:4]
    if substitution.only_views(source, maker):
        others = [value.reshape(maker.shape)]
    right = [
        layout for layout in others if _leads_to(substitution, maker.index, layout, source, value)
    ]
    others = right[:1] or others
    for layout in others:
        tried = substitution.scored(substitution.at(maker, theirs, layout))
        if best is None or tried.score > best.score:
            best = tried
    # A value in another layout than the port's would be a mistake of its own.
    if best is None or (best.score <= 0 and len(others) > 1):
        return [Cut("operand", mine.index, index, value, source, calls, cut.score)]
    return narrowed(substitution, best, depth - 1)


def _leads_to(
    substitution: Substitution, base: int, layout: Tensor, source: int, value: Tensor
) -> bool:
    """Tell whether `value` is right if one tensor has this layout; `value` is only a reordering of
    that tensor."""
    if source == base:
        return False
    try:
        made = substitution.replay.change(ChangedValues(replace={base: layout}), stop_after=source)
    except (CannotReplayError, *CALL_ERRORS):
        return False
    if source not in made or made[source].numel() != value.numel():
        return False
    return close(made[source], value.reshape(made[source].shape), _ROUNDED)


def _out_of_order(
    substitution: Substitution, cut: Cut, source: int, index: int, value: Tensor
) -> Cut:
    """Return the operation that puts elements into another order, for elements that are the
    reference's: the first operation on the way here whose result no layout makes equal."""
    chain = [source]
    while substitution.operations[chain[-1]].reorders and substitution.operations[chain[-1]].inputs:
        chain.append(substitution.operations[chain[-1]].inputs[0])
    theirs = [index]
    while substitution.theirs[theirs[-1]].reorders and substitution.theirs[theirs[-1]].inputs:
        theirs.append(substitution.theirs[theirs[-1]].inputs[0])
    own = {i: substitution.replay.value(i) for i in chain}
    others = [value, *substitution.their_values(set(theirs)).values()]
    culprit = chain[-1]
    for here, before in pairwise(chain):
        same = (aligned(own[before], o, _ROUNDED, strict=True) for o in others)
        if any(layout is not None for layout in same):
            culprit = here
            break
    calls = frozenset({substitution.operations[cut.index].call})
    return Cut("order", culprit, index, value, source, calls, cut.score)
