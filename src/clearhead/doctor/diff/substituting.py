"""After a departure, the reference's value replaces the port's, and what follows has equals again.
Which value goes where is found by trying: the port departs at the place after which most tensors
have an equal."""

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from itertools import islice

import torch
from torch import Tensor

from ..form import CALL_ERRORS
from .cuts import Cut
from .fingerprints import fingerprint
from .layouts import layouts
from .matching import Matching
from .operations import Operation, root, split_shape
from .replaying import CannotReplayError, ChangedValues, Replay, is_computed
from .sides import Program

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
_SMALL = 200_000
_MIXES = ("mm", "bmm", "convolution", "sum", "mean", "amax", "var_mean", "var", "std")
"""They give another result if elements are in another order, whatever the fingerprint says."""


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
        self.ranks = {index: rank for rank, index in enumerate(self.refs)}
        self.joins = set(joins[0]), set(joins[1])
        self.end = self._end(max([self.frontier[0], *joins[0]]))
        seeds = {*self.ours, *self.entries(), *(i for f in self.frontier for i in self._reads(f))}
        seeds |= {i for o in self.ours for i in self._same_tables(self.operations[o])}
        self.replay = Replay(port, matching.port, seeds, self.end)
        self._their_values: dict[int, Tensor] = {}
        self._add_parts()

    def their_values(self, indices: set[int]) -> dict[int, Tensor]:
        """Tensors of the reference. What is asked for next is near: a run keeps that as well."""
        missing = indices - self._their_values.keys()
        if missing:
            first, last = min(missing) - _WINDOW, max(missing) + _WINDOW // 2
            near = [o for o in self.theirs[max(first, 0) : last] if math.prod(o.shape) <= _SMALL]
            near = [o.index for o in near if o.from_tokens]
            self._their_values |= self.reference.values(missing.union(near))
        return {i: self._their_values[i] for i in indices}

    def _add_parts(self) -> None:
        """Where the port computes part by part, the parts of the reference's results."""
        self._turns: dict[int, int] = {}
        times: Counter[object] = Counter()
        if not self.matching.n_parts:
            return
        for operation in self.operations:
            key = operation.lines, operation.name, operation.shape
            self._turns[operation.index] = times[key]
            times[key] += 1
        for index in self.matching.n_parts:
            whole = self.matching.whole(self.theirs[index]).index
            if whole in self.ranks and not self.matching.is_used(index):
                self.refs.append(index)
                self.ranks[index] = self.ranks[whole]

    def _is_its_turn(self, mine: int, theirs: Operation) -> bool:
        """Whether a part of the reference's result is the one that a loop of the port makes here:
        the n-th time that its line runs, the n-th part."""
        n = self.matching.n_parts.get(theirs.index)
        return n is None or self._turns[mine] % n == theirs.nth

    def layouts(self, mine: int, theirs: int, value: Tensor | None = None) -> list[Tensor]:
        """A tensor of the reference, or another value in its place, in the shape of one of the
        port: the likeliest first."""
        value = self.their_values({theirs})[theirs] if value is None else value
        shape, matching = self.operations[mine].shape, self.matching
        found = list(layouts(value, shape))
        ours = split_shape(self.operations, matching.port_readers, mine)
        others = split_shape(self.theirs, matching.reference_readers, theirs)
        if (ours, others) != (shape, tuple(value.shape)):
            wide = layouts(value.reshape(others), ours, strict=True)
            found = _distinct([*(layout.reshape(shape) for layout in wide), *found])
        return found

    def _fitting(self, mine: int, theirs: int) -> list[Tensor]:
        """The first layouts; not the first one turned round."""
        return _unturned(self.layouts(mine, theirs))[:_LAYOUTS]

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
            if found is None or cut.quality > found.quality:
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
        score, is_firm, apart = self._gain(cut, self.end)
        return replace(cut, score=score, is_firm=is_firm, apart=apart)

    def restores(self, change: ChangedValues) -> bool:
        """Whether the port's own operations, with something changed, have an equal again, and none
        loses its own: what mixes elements among them, so that their order is right."""
        return self._gain_of(change, (), self.end)[1]

    def _gain(self, cut: Cut, last: int) -> tuple[int, bool, float]:
        return self._gain_of(cut.change, (cut.place, *cut.also), last)

    def _gain_of(
        self, change: ChangedValues, given: tuple[int, ...], last: int
    ) -> tuple[int, bool, float]:
        try:
            changed = self.replay.change(change, stop_after=last)
        except (CannotReplayError, *CALL_ERRORS):
            return 0, False, 0.0
        asked = [
            replace(self.operations[i], fingerprint=fingerprint(tensor))
            for i, tensor in changed.items()
            if i not in given and is_computed(self.operations[i]) and tensor.numel()
        ]
        now = self.matching.equals(asked)
        known = self.matching.knows
        gained = [o for o in asked if o.index in now and not known(o.index) and _says_much(o)]
        # With a key in place of a query, what follows is what the port has of the key already.
        fresh = [o for o in gained if not self.matching.is_used(now[o.index].index)]
        lost = sum(o.index not in now and known(o.index) for o in asked)
        is_firm = lost == 0 and any(o.name in _MIXES for o in fresh)
        apart = max((now[o.index].distance for o in gained), default=0.0)
        return len(gained) - lost, is_firm, apart

    def _end(self, start: int, window: int = _WINDOW) -> int:
        counted = 0
        for operation in self.operations[start + 1 :]:
            counted += not (operation.reorders or operation.is_leaf)
            if counted >= window:
                return operation.index
        return len(self.operations) - 1

    def _trials(self) -> Iterator[tuple[int, Cut]]:
        ours, refs, entries = self.ours, self.refs, self.entries()
        self.their_values(set(refs))
        own = {i: self.replay.value(i) for i in entries}
        for i, place in enumerate(ours):
            mine = self.operations[place]
            for index in refs:
                other = self.theirs[index]
                # Positions that one counts are derived from the tokens by another.
                if mine.from_tokens and not other.from_tokens:
                    continue
                if not self._is_its_turn(place, other) or _is_one_for_a_row(mine, other):
                    continue
                if _counts(mine.dtype) and not _counts(other.dtype):
                    continue
                name = self.matching.whole(other).name
                rank = i + self.ranks[index] + (0 if mine.name == name else 3)
                if place in self.joins[0] and index in self.joins[1]:
                    rank //= 3  # where everything meets, one value restores all that follows
                for n, value in enumerate(self._fitting(place, index)):
                    yield rank + 2 * n, self.at(mine, index, value)
        for i, place in enumerate(ours[: _NEAR // 2]):
            mine, made_of = self.operations[place], self.sources_of(place)
            for source in entries:
                if not mine.from_tokens or mine.is_leaf or self.root(source) not in made_of:
                    continue
                for value in _unturned(list(layouts(own[source], mine.shape)))[:2]:
                    theirs = self.matching.of_port[source].index
                    yield 4 + i, Cut("bypass", place, theirs, value, source)
        for source in entries:
            for index in refs:
                mine, other = self.operations[source], self.theirs[index]
                if not other.from_tokens or math.prod(other.shape) < math.prod(mine.shape):
                    continue  # one number for a row of them makes all that follows the same
                if not self._is_its_turn(source, other):
                    continue
                for n, value in enumerate(self._fitting(source, index)):
                    for calls in self._wrong_readers(source):
                        place = next(o.index for o in self.operations if o.call in calls)
                        rank = 3 + self.ranks[index] + 2 * n
                        yield rank, Cut("insert", place, index, value, source, calls)

    def at(self, mine: Operation, index: int, value: Tensor) -> Cut:
        """The reference's value in place of a result or a leaf."""
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
        later = (o for o in later if o.nth is None and not (is_known(o.index) or o.reorders))
        near = [o.index for o in islice(later, _NEAR)]
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

    def sources_of(self, place: int) -> set[int]:
        """Known tensors of which unknown operations make this one."""
        todo, seen, found = [place], {place}, set[int]()
        while todo:
            for i in self.operations[todo.pop()].inputs:
                if self.operations[i].from_tokens and i not in seen:
                    seen.add(i)
                    known = self.matching.knows(i)
                    todo += [] if known and not self.operations[self.root(i)].selects else [i]
                    found |= {self.root(i)} if known else set()
        return found

    def as_bypass(self, cut: Cut) -> Cut | None:
        """The same cut, where the reference's value is what the port's operations begin with."""
        equal = self.matching.of_reference.get(root(self.theirs, cut.reference))
        if equal is None or cut.kind != "replace":
            return None
        source = self.root(equal.index)
        return (
            replace(cut, kind="bypass", source=source)
            if source in self.sources_of(cut.place)
            else None
        )

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
        fitting = self._fitting(place, theirs)
        return Cut("replace", place, root(self.theirs, theirs), fitting[0]) if fitting else None


def _counts(dtype: torch.dtype) -> bool:
    """Whole numbers: no table of real numbers or flags takes their place."""
    return not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)


def _is_one_for_a_row(mine: Operation, theirs: Operation) -> bool:
    """With one number for each row, a norm makes all that follows the same."""
    return mine.from_tokens and mine.shape[-1:] > (1,) and theirs.shape[-1:] == (1,)


def _says_much(operation: Operation) -> bool:
    """Zeros, and one number everywhere, are equal to too much."""
    found = operation.fingerprint
    return found is not None and min(found.ranks) < max(found.ranks)


def _distinct(values: list[Tensor]) -> list[Tensor]:
    earlier = (values[:n] for n in range(len(values)))
    return [v for v, others in zip(values, earlier) if not any(torch.equal(v, w) for w in others)]


def _unturned(found: list[Tensor]) -> list[Tensor]:
    """Layouts without those that are an earlier one turned round: with queries for keys, and keys
    for queries, a softmax along the wrong axis would seem right."""
    if not found or found[0].dim() < 2 or found[0].shape[-1] != found[0].shape[-2]:
        return found
    turned = [f.mT for f in found]
    return [f for n, f in enumerate(found) if not any(torch.equal(f, t) for t in turned[:n])]
