"""Puts the reference's value in place of the port's at a departure, so that the rest of the run has
counterparts again. `searching` finds which value belongs where."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from ..form import CALL_ERRORS
from .cuts import Cut
from .fingerprints import fingerprint
from .layouts import layouts
from .matching import Matching
from .operations import Operation, root, split_shape
from .recorded import Recording
from .replaying import CannotReplayError, ChangedValues, Replay, is_computed
from .sides import Program

_NEAR = 16
"""The largest number of results between the first unknown one and the place where the two runs meet
again."""
_JOINS = 6
"""The number of places, through which every unknown tensor passes, that are tried."""
_WINDOW = 60
"""The number of later results for which an equal is searched."""
_SOON = 12
"""The number of these results for which an equal is searched first."""
_SMALL = 200_000
"""A tensor of the reference with at most so many elements is kept before it is needed."""
_MIXES = ("mm", "bmm", "convolution", "sum", "mean", "amax", "var_mean", "var", "std")
"""Operations whose result changes if elements are put into another order, even if the fingerprint
of their inputs does not."""


@dataclass(frozen=True)
class OwnResults:
    """Results that only one of the two programs computes."""

    operations: list[Operation]
    """All operations of the program."""
    frontier: list[int]
    """The operations that read only known tensors, and whose results have no counterpart."""
    joins: list[int]
    """The first places through which every unknown tensor passes on its way to the output."""
    unknown: list[int]
    """The results without a counterpart, from the first one up to the joins, the joins themselves,
    and, before all of these, the constants that they use."""

    @classmethod
    def of(
        cls,
        recording: Recording,
        frontier: list[int],
        joins: list[int],
        is_known: Callable[[int], bool],
    ) -> "OwnResults":
        """Return the operations of one program and their values, from what `Matching` knows about
        it."""
        operations = recording.operations
        joins = joins[:_JOINS]
        later = (o for o in operations[frontier[0] :] if o.from_tokens)
        later = (o for o in later if o.nth is None and not (is_known(o.index) or o.reorders))
        near = [o.index for o in islice(later, _NEAR)]
        near = list(dict.fromkeys([*near, *joins]))
        constants: list[int] = []
        todo = [*frontier[:6], *near[:6]]
        while todo:
            for i in operations[todo.pop(0)].inputs:
                if operations[i].from_tokens or is_known(i) or i in constants:
                    continue
                todo.append(i)
                constants.append(i)
        constants = [i for i in constants if not operations[i].reorders]
        return cls(operations, frontier, joins, [*constants[:_NEAR], *near])


class _Gain(NamedTuple):
    """The effect of a change to the port's run."""

    score: int
    """The number of results that have an equal again, minus the number that lost it."""
    is_firm: bool
    """True if no result lost its equal, and a result that depends on the order of elements gained
    one."""
    apart: float
    """The largest distance between one of these results and its equal."""


class Substitution:
    """The effect of values of the reference in a run of the port."""

    def __init__(self, reference: Program, port: Program, matching: Matching) -> None:
        self.reference, self.port, self.matching = reference, port, matching
        self.port_side = OwnResults.of(
            matching.port, matching.port_frontier(), matching.joins("port"), matching.knows
        )
        self.reference_side = OwnResults.of(
            matching.reference,
            matching.reference_frontier(),
            matching.joins("reference"),
            matching.is_used,
        )
        self.operations = self.port_side.operations
        self.theirs = self.reference_side.operations
        frontier, unknown = self.port_side.frontier, self.port_side.unknown
        self.end = self._end(max([frontier[0], *self.port_side.joins]))
        read = [i for index in frontier for i in self.operations[index].inputs]
        seeds = {*unknown, *self.entries(), *(i for i in read if self.operations[i].from_tokens)}
        seeds |= {i for o in unknown for i in self._same_tables(self.operations[o])}
        self.replay = Replay(port, matching.port, seeds, self.end)
        self._their_values: dict[int, Tensor] = {}

    def their_values(self, indices: set[int]) -> dict[int, Tensor]:
        """Return tensors of the reference. The tensors needed next are usually close to these, so
        each run also keeps the neighbouring tensors."""
        missing = indices - self._their_values.keys()
        if missing:
            first, last = min(missing) - _WINDOW, max(missing) + _WINDOW // 2
            near = [o for o in self.theirs[max(first, 0) : last] if math.prod(o.shape) <= _SMALL]
            near = [o.index for o in near if o.from_tokens]
            self._their_values |= self.reference.values(missing.union(near))
        return {i: self._their_values[i] for i in indices}

    def layouts(self, mine: int, theirs: int, value: Tensor | None = None) -> list[Tensor]:
        """Return a tensor of the reference (or another value in its place) in the shape of a tensor
        of the port, the likeliest layout first."""
        value = self.their_values({theirs})[theirs] if value is None else value
        shape, matching = self.operations[mine].shape, self.matching
        fitting = list(layouts(value, shape))
        split = split_shape(self.operations, matching.port_readers, mine)
        their_split = split_shape(self.theirs, matching.reference_readers, theirs)
        if (split, their_split) != (shape, tuple(value.shape)):
            wide = layouts(value.reshape(their_split), split, strict=True)
            fitting = _distinct([*(layout.reshape(shape) for layout in wide), *fitting])
        return fitting

    def scored(self, cut: Cut) -> Cut:
        """Return the cut with its score: how many more results have a counterpart if the
        reference's value is used, minus those that no longer have one."""
        # Most trials fail at once: what reads the value next has no equal either.
        soon = self._end(max(cut.index, self.port_side.frontier[0]), _SOON)
        substituted = (cut.index, *cut.also)
        if self._gain(cut.change, substituted, soon).score <= 0:
            return cut
        return replace(cut, **self._gain(cut.change, substituted, self.end)._asdict())

    def restores(self, change: ChangedValues) -> bool:
        """Tell whether the port's own operations have a counterpart again after a change, and none
        loses its counterpart. This includes operations that mix elements, so that the order must be
        right."""
        return self._gain(change, (), self.end).is_firm

    def _gain(self, change: ChangedValues, substituted: tuple[int, ...], last: int) -> _Gain:
        """Count the results up to operation `last`; substituted values do not count."""
        try:
            changed = self.replay.change(change, stop_after=last)
        except (CannotReplayError, *CALL_ERRORS):
            return _Gain(0, False, 0.0)
        asked = [
            replace(self.operations[i], fingerprint=fingerprint(tensor))
            for i, tensor in changed.items()
            if i not in substituted and is_computed(self.operations[i]) and tensor.numel()
        ]
        now = self.matching.equals(asked)
        known = self.matching.knows
        gained = [o for o in asked if o.index in now and not known(o.index) and _says_much(o)]
        # With a key in the place of a query, what follows is what the port has of the key already.
        fresh = [o for o in gained if not self.matching.is_used(now[o.index].index)]
        lost = sum(o.index not in now and known(o.index) for o in asked)
        is_firm = lost == 0 and any(o.name in _MIXES for o in fresh)
        apart = max((now[o.index].distance for o in gained), default=0.0)
        return _Gain(len(gained) - lost, is_firm, apart)

    def _end(self, start: int, window: int = _WINDOW) -> int:
        """Return the operation before which `window` results follow `start`."""
        counted = 0
        for operation in self.operations[start + 1 :]:
            counted += not (operation.reorders or operation.is_leaf)
            if counted >= window:
                return operation.index
        return len(self.operations) - 1

    def at(self, mine: Operation, index: int, value: Tensor) -> Cut:
        """Return a cut that puts the reference's value in the place of a result or a leaf."""
        if not mine.is_leaf and mine.name != "written":
            return Cut("replace", mine.index, index, value, also=self._same_tables(mine))
        calls = frozenset(o.call for o in self.operations if mine.index in o.inputs)
        return Cut("operand", mine.index, index, value, mine.index, calls)

    def entries(self) -> list[int]:
        """Return the known tensors that the first unknown operations read, and the views of these
        tensors through which they are read, because the axes of a view may be easier to find in the
        reference."""
        read = [i for index in self.port_side.frontier[:4] for i in self.operations[index].inputs]
        common = [i for i in read if self.operations[i].from_tokens and i in self.matching.of_port]
        roots = list(dict.fromkeys(map(self.root, common)))[:4]
        return roots + [i for i in dict.fromkeys(common) if i not in roots][:4]

    def sources_of(self, index: int) -> set[int]:
        """Return the known tensors from which unknown operations make this tensor."""
        todo, visited, sources = [index], {index}, set[int]()
        while todo:
            for i in self.operations[todo.pop()].inputs:
                if self.operations[i].from_tokens and i not in visited:
                    visited.add(i)
                    is_known, made_by = self.matching.knows(i), self.root(i)
                    if is_known:
                        sources.add(made_by)
                    if not is_known or self.operations[made_by].selects:
                        todo.append(i)
        return sources

    def as_bypass(self, cut: Cut) -> Cut | None:
        """Return the same cut as a bypass, in which the reference's value is the input of the
        port's operations."""
        equal = self.matching.of_reference.get(root(self.theirs, cut.reference))
        if equal is None or cut.kind != "replace":
            return None
        source = self.root(equal.index)
        if source not in self.sources_of(cut.index):
            return None
        return replace(cut, kind="bypass", source=source)

    def root(self, index: int) -> int:
        """Return the tensor of which this tensor is a view."""
        return root(self.operations, index)

    def is_read_only_by(self, calls: frozenset[int], index: int) -> bool:
        """Tell whether no other call computes with a tensor of the port, or with views of it."""
        readers_of = self.matching.port_readers
        readers = [self.operations[i] for i in readers_of.get(self.root(index), ())]
        while readers:
            reader = readers.pop()
            if reader.call in calls:
                continue
            if not reader.reorders:
                return False
            readers += [self.operations[i] for i in readers_of.get(reader.index, ())]
        return True

    def only_views(self, source: int, base: Operation) -> bool:
        """Tell whether a tensor of the port has the elements of another in the same order, but in
        another shape."""
        while source != base.index:
            operation = self.operations[source]
            if not operation.is_view:
                return False
            source = operation.inputs[0]
        return not base.dtype.is_complex

    def _same_tables(self, mine: Operation) -> tuple[int, ...]:
        """Return the operations in which the same line makes the same table again, for keys or in
        another layer."""
        if mine.from_tokens or mine.fingerprint is None:
            return ()
        return tuple(
            o.index
            for o in self.operations
            if o.index != mine.index
            and (o.name, o.line, o.shape) == (mine.name, mine.line, mine.shape)
            and o.fingerprint == mine.fingerprint
        )


def _says_much(operation: Operation) -> bool:
    """Tell whether a tensor is distinctive: zeros, or one number everywhere, equal too many
    others."""
    numbers = operation.fingerprint
    return numbers is not None and min(numbers.ranks) < max(numbers.ranks)


def _distinct(values: list[Tensor]) -> list[Tensor]:
    earlier = (values[:n] for n in range(len(values)))
    return [v for v, others in zip(values, earlier) if not any(torch.equal(v, w) for w in others)]
