"""Behind a departure the reference's value is put in place of the port's, and what follows has
equals again. Which value goes where is found by trying: the place after which most tensors have an
equal is where the port departs."""

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from ..form import CALL_ERRORS
from .fingerprints import fingerprint
from .layouts import layouts
from .matching import Matching
from .operations import Operation
from .recording import Plan, Swap
from .replaying import CannotReplayError, ChangedValues, Replay, is_computed
from .sides import Program

CutKind = Literal["replace", "bypass", "insert", "operand", "order"]

_MAX_TRIALS = 400
_MIN_TRIALS = 40
_SECONDS = 8.0
_NEAR = 16
"""How many results behind the first unknown one may be where the two meet again."""
_JOINS = 6
"""How many of the places that everything passes are tried."""
_WINDOW = 60
"""How many results behind it are asked whether they have an equal again."""
_SOON = 12
_LAYOUTS = 3
_TIES = 4
_MIXES = ("mm", "bmm", "convolution", "sum", "mean", "amax", "var_mean", "var", "std")
"""They give another result if elements are in another order, whatever the fingerprint says."""


@dataclass(frozen=True)
class Cut:
    """One value in the port, and the reference's value that belongs there."""

    kind: CutKind
    """replace: a result is another. bypass: the reference has no such operation. insert: the port
    lacks an operation. operand: an operation reads another tensor. order: the elements are right,
    in another order."""
    place: int
    """The operation of the port: whose result is replaced, or which reads another tensor."""
    reference: int
    """The operation of the reference whose value belongs there."""
    value: Tensor = field(repr=False)
    source: int = -1
    """insert, operand and order: the tensor of the port that is read."""
    calls: frozenset[int] = frozenset()
    """insert, operand and order: the calls that read it."""
    score: int = 0
    is_firm: bool = False
    """Whether results that mix elements have an equal again, so that their order is right."""
    also: tuple[int, ...] = ()
    """replace: other operations that make the same table again, which are one with this one."""

    @property
    def plan(self) -> Plan:
        """A run with the reference's value in place."""
        return Plan(replace=self.change.replace, swaps=self.change.swaps)

    @property
    def change(self) -> ChangedValues:
        """The same for a part of a run."""
        if self.kind in ("replace", "bypass"):
            return ChangedValues(replace=dict.fromkeys((self.place, *self.also), self.value))
        return ChangedValues(swaps=(Swap(self.source, self.value, self.calls),))


class Substitution:
    """Trials of the reference's values in a run of the port."""

    def __init__(self, reference: Program, port: Program, matching: Matching) -> None:
        self.reference, self.port, self.matching = reference, port, matching
        self.operations = matching.port.operations
        self.theirs = matching.reference.operations
        self.frontier = matching.port_frontier()
        self.their_frontier = matching.reference_frontier()
        joins = matching.joins("port")[:_JOINS], matching.joins("reference")[:_JOINS]
        self.ours = self._unknown(self.operations, self.frontier, matching.knows, joins[0])
        self.refs = self._unknown(self.theirs, self.their_frontier, matching.is_used, joins[1])
        self.joins = set(joins[0]), set(joins[1])
        self.end = self._end(max([self.frontier[0], *joins[0]]))
        seeds = {*self.ours, *self.entries(), *(i for f in self.frontier for i in self._reads(f))}
        seeds |= {i for o in self.ours for i in self._same_tables(self.operations[o])}
        self.replay = Replay(port, matching.port, seeds, self.end)

    def _reads(self, index: int) -> list[int]:
        return [i for i in self.operations[index].inputs if self.operations[i].from_tokens]

    def best(self, before: Collection[Cut] = ()) -> list[Cut]:
        """The trial after which most tensors have an equal again, and others that restore as much;
        empty, if none helps. Earlier cuts are tried first at the same lines: a bug in one layer is
        in all."""
        trials = sorted(self._trials(), key=lambda trial: trial[0])
        best = self._best_of(trial for trial in trials if self._repeats(trial[1], before))
        if best and best[0].score >= min(cut.score for cut in before) / 2:
            return best
        best = self._best_of(trials)
        at_the_end = None if best else self._at_the_output()
        return best if at_the_end is None else [at_the_end]

    def _best_of(self, trials: Iterable[tuple[int, Cut]]) -> list[Cut]:
        started, found, since = time.thread_time(), None, 0
        firm: dict[int, Cut] = {}
        others: list[Cut] = []
        for number, (_, cut) in enumerate(trials):
            late = time.thread_time() - started > _SECONDS and number >= _MIN_TRIALS
            if late or number >= _MAX_TRIALS or since >= _MIN_TRIALS:
                break
            cut = self.scored(cut)
            since += found is not None
            if cut.score <= 0:
                continue
            if found is None or (cut.score, -cut.place) > (found.score, -found.place):
                found, since = cut, 0
            if cut.kind in ("insert", "bypass"):
                others.append(cut)
            is_firm = cut.is_firm and cut.kind == "replace"
            if is_firm and (cut.place not in firm or cut.score > firm[cut.place].score):
                firm[cut.place] = cut
        # What lies behind the first departure is judged once the reference's value is there.
        if found is not None and firm and min(firm) < found.place:
            found = firm[min(firm)]
        if found is None:
            return []
        ties = [c for c in others if c.score >= found.score and c is not found]
        return [found, *(c for c in ties if c.place <= found.place)][:_TIES]

    def _repeats(self, cut: Cut, before: Collection[Cut]) -> bool:
        """Whether an earlier cut was at the same lines of both programs."""
        return any(self._pattern(cut) == self._pattern(other) for other in before)

    def scored(self, cut: Cut) -> Cut:
        """With how many more results have an equal with the reference's value in place, less those
        that no longer have one."""
        # Most trials fail at once: what reads the value next has no equal either.
        if self._gain(cut, self._end(max(cut.place, self.frontier[0]), _SOON))[0] <= 0:
            return cut
        score, is_firm = self._gain(cut, self.end)
        return replace(cut, score=score, is_firm=is_firm)

    def restores(self, change: ChangedValues) -> bool:
        """Whether the port's own operations, with something changed, have an equal again, and none
        loses its own: what mixes elements among them, so that their order is right."""
        return self._gain_of(change, (), self.end)[1]

    def _gain(self, cut: Cut, last: int) -> tuple[int, bool]:
        return self._gain_of(cut.change, (cut.place, *cut.also), last)

    def _gain_of(
        self, change: ChangedValues, given: tuple[int, ...], last: int
    ) -> tuple[int, bool]:
        try:
            changed = self.replay.change(change, stop_after=last)
        except (CannotReplayError, *CALL_ERRORS):
            return 0, False
        asked = [
            replace(self.operations[i], fingerprint=fingerprint(tensor))
            for i, tensor in changed.items()
            if i not in given and is_computed(self.operations[i]) and tensor.numel()
        ]
        now = self.matching.equals(asked)
        known = self.matching.knows
        gained = [o for o in asked if o.index in now and not known(o.index) and _says_much(o)]
        # With a key in the place of a query, what follows is what the port has of the key already.
        fresh = [o for o in gained if not self.matching.is_used(now[o.index].index)]
        lost = sum(o.index not in now and known(o.index) for o in asked)
        is_firm = lost == 0 and any(o.name in _MIXES for o in fresh)
        return len(gained) - lost, is_firm

    def _end(self, start: int, window: int = _WINDOW) -> int:
        counted = 0
        for operation in self.operations[start + 1 :]:
            counted += not (operation.reorders or operation.is_leaf)
            if counted >= window:
                return operation.index
        return len(self.operations) - 1

    def _trials(self) -> Iterator[tuple[int, Cut]]:
        ours, refs, entries = self.ours, self.refs, self.entries()
        values = self.reference.values(set(refs))
        own = {i: self.replay.value(i) for i in entries}
        for i, place in enumerate(ours):
            mine = self.operations[place]
            for j, index in enumerate(refs):
                other = self.theirs[index]
                # Positions that one counts are derived from the tokens by another.
                if mine.from_tokens and not other.from_tokens:
                    continue
                if _counts(mine.dtype) and not _counts(other.dtype):
                    continue
                rank = i + j + (0 if mine.name == other.name else 3)
                if place in self.joins[0] and index in self.joins[1]:
                    rank //= 3  # where everything meets, one value restores all that follows
                for n, value in enumerate(_in_shape(values[index], mine.shape)):
                    yield rank + 2 * n, self.at(mine, index, value)
        for i, place in enumerate(ours[: _NEAR // 2]):
            mine = self.operations[place]
            for source in entries:
                if not mine.from_tokens or mine.is_leaf:
                    continue
                for value in _in_shape(own[source], mine.shape)[:2]:
                    theirs = self.matching.of_port[source].index
                    yield 4 + i, Cut("bypass", place, theirs, value, source)
        for source in entries:
            for j, index in enumerate(refs):
                whole = math.prod(self.operations[source].shape)
                if (
                    not self.theirs[index].from_tokens
                    or math.prod(self.theirs[index].shape) < whole
                ):
                    continue  # one number for a row of them makes all that follows the same
                for n, value in enumerate(_in_shape(values[index], self.operations[source].shape)):
                    for calls in self._wrong_readers(source):
                        place = next(o.index for o in self.operations if o.call in calls)
                        yield 3 + j + 2 * n, Cut("insert", place, index, value, source, calls)

    def at(self, mine: Operation, index: int, value: Tensor) -> Cut:
        """The reference's value in the place of a result or a leaf."""
        if not mine.is_leaf and mine.name != "written":
            return Cut("replace", mine.index, index, value, also=self._same_tables(mine))
        calls = frozenset(o.call for o in self.operations if mine.index in o.inputs)
        return Cut("operand", mine.index, index, value, mine.index, calls)

    def _unknown(
        self,
        operations: list[Operation],
        frontier: list[int],
        is_known: Callable[[int], bool],
        joins: list[int],
    ) -> list[int]:
        """Results without an equal, from the first of them on, up to where they meet; the first
        places where all of them meet; and the constants that they use."""
        later = (o for o in operations[frontier[0] :] if o.from_tokens)
        near = [o.index for o in later if not (is_known(o.index) or o.reorders)][:_NEAR]
        near = list(dict.fromkeys([*near, *joins]))
        constants: list[int] = []
        todo = [*frontier[:6], *near[:6]]
        while todo:
            for i in operations[todo.pop(0)].inputs:
                other = operations[i]
                if other.from_tokens or is_known(i) or i in constants:
                    continue
                todo.append(i)
                constants.append(i)
        constants = [i for i in constants if not operations[i].reorders]
        return [*constants[:_NEAR], *near]

    def entries(self) -> list[int]:
        """Known tensors that the first unknown operations read, and the views of them that these
        read, whose axes may be easier to find in the reference."""
        found: list[int] = []
        views: list[int] = []
        for index in self.frontier[:4]:
            for i in self.operations[index].inputs:
                if self.operations[i].from_tokens and i in self.matching.of_port:
                    found.append(self.root(i))
                    views.append(i)
        found = list(dict.fromkeys(found))[:4]
        return found + [i for i in dict.fromkeys(views) if i not in found][:4]

    def root(self, index: int) -> int:
        """The tensor of which this one is a view."""
        return root(self.operations, index)

    def _wrong_readers(self, source: int) -> Iterator[frozenset[int]]:
        """The calls that read a tensor on the way to unknown results; and of these, the ones that
        do not add it to another unknown tensor, as a residual does."""
        wrong = [
            self.operations[i]
            for i in self.matching.port_readers.get(source, ())
            if self._leads_to_unknown(i)
        ]
        every = frozenset(o.call for o in wrong)
        plain = frozenset(
            o.call
            for o in wrong
            if o.name not in ("add", "add_", "sub") or all(self.matching.knows(i) for i in o.inputs)
        )
        for calls in dict.fromkeys((every, plain)):
            if calls:
                yield calls

    def _leads_to_unknown(self, index: int) -> bool:
        if not self.matching.knows(index):
            return True
        readers = self.matching.port_readers.get(index, ())
        return self.operations[index].reorders and any(map(self._leads_to_unknown, readers))

    def _same_tables(self, mine: Operation) -> tuple[int, ...]:
        """Where the same line makes the same table again: for keys, or in another layer."""
        if mine.from_tokens or mine.fingerprint is None:
            return ()
        return tuple(
            o.index
            for o in self.operations
            if o.index != mine.index
            and (o.name, o.line, o.shape) == (mine.name, mine.line, mine.shape)
            and o.fingerprint == mine.fingerprint
        )

    def _pattern(self, cut: Cut) -> tuple[object, ...]:
        mine, theirs = self.operations[cut.place], self.theirs[cut.reference]
        return (cut.kind, mine.name, mine.line, mine.shape, theirs.name, theirs.line)

    def _at_the_output(self) -> Cut | None:
        """Nothing follows the output that could be compared: its own operation is the place."""
        end, theirs = self.matching.port.output, self.matching.reference.output
        assert end is not None and theirs is not None
        place = self.root(end)
        if place not in self.frontier:
            return None
        value = self.reference.values({theirs})[theirs]
        fitting = _in_shape(value, self.operations[place].shape)
        return Cut("replace", place, root(self.theirs, theirs), fitting[0]) if fitting else None


def _counts(dtype: torch.dtype) -> bool:
    """Whole numbers: no table of real numbers or flags takes their place."""
    return not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)


def _says_much(operation: Operation) -> bool:
    """Zeros, and one number everywhere, are equal to too much."""
    found = operation.fingerprint
    return found is not None and min(found.numbers[3:]) < max(found.numbers[3:])


def _in_shape(value: Tensor, shape: tuple[int, ...]) -> list[Tensor]:
    """The first layouts; not the first one turned round: with queries for keys, and keys for
    queries, a softmax along the wrong axis would seem right."""
    found = list(layouts(value, shape))
    if len(shape) > 1 and shape[-1] == shape[-2] and found:
        turned = [f.mT for f in found]
        found = [f for n, f in enumerate(found) if not any(torch.equal(f, t) for t in turned[:n])]
    return found[:_LAYOUTS]


def root(operations: list[Operation], index: int) -> int:
    """The operation whose elements this one only puts into another order."""
    while operations[index].reorders and operations[index].inputs:
        index = operations[index].inputs[0]
    return index
