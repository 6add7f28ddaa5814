"""Finds by trying which value of the reference belongs where in the port. The port departs at the
place after which most tensors have a counterpart."""

import math
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator

import torch
from torch import Tensor

from .cuts import Cut
from .layouts import layouts
from .operations import Operation, root
from .substituting import Substitution

_MAX_TRIALS = 400
_MIN_TRIALS = 40
"""The number of trials that are made however long they take. As many trials without a better result
end the search."""
_SECONDS = 8.0
_TIES = 4
_LAYOUTS = 3
_BYPASSED = 8
"""The number of unknown results in whose place a known tensor is tried."""

# A trial's rank: how many unknown results of both programs come before its two, and these. Trials
# with a lower rank are made first.
_OTHER_OPERATION = 3
_OTHER_LAYOUT = 2
_BYPASS = 4
_INSERTION = 3
_JOINED = 3
"""The rank is divided by this at a place through which every unknown tensor passes, because one
value restores everything after it."""


def best_cuts(s: Substitution, earlier: Collection[Cut] = ()) -> list[Cut]:
    """Return the trial after which most tensors have a counterpart again, and others that restore
    as many; empty if no trial helps. Places at the lines of earlier cuts are tried first, because a
    bug in one layer is in all layers."""
    trials = _Trials(s).sorted()
    patterns = {_pattern(s, cut) for cut in earlier}
    best = _best_of(s, (cut for cut in trials if _pattern(s, cut) in patterns))
    if best and best[0].score >= min(cut.score for cut in earlier) / 2:
        return best
    return _best_of(s, trials) or _at_the_output(s)


def _best_of(s: Substitution, trials: Iterable[Cut]) -> list[Cut]:
    started, best, n_since = time.thread_time(), None, 0
    firm: dict[int, Cut] = {}  # by the result that is replaced
    additions: list[Cut] = []
    for number, cut in enumerate(trials):
        is_late = time.thread_time() - started > _SECONDS and number >= _MIN_TRIALS
        if is_late or number >= _MAX_TRIALS or n_since >= _MIN_TRIALS:
            break
        cut = s.scored(cut)
        n_since += best is not None
        if cut.score <= 0:
            continue
        if best is None or cut.quality > best.quality:
            best, n_since = cut, 0
        if cut.kind in ("insert", "bypass"):
            additions.append(cut)
        is_firm = cut.is_firm and cut.kind == "replace"
        if is_firm and (cut.index not in firm or cut.score > firm[cut.index].score):
            firm[cut.index] = cut
    # What lies behind the first departure is judged once the reference's value is there.
    if best is not None and firm and min(firm) < best.index:
        best = firm[min(firm)]
    if best is None:
        return []
    ties = [c for c in additions if c.score >= best.score and c is not best]
    return [best, *(c for c in ties if c.index <= best.index)][:_TIES]


def _pattern(s: Substitution, cut: Cut) -> tuple[object, ...]:
    """Return the line in each program at which a cut is, and the kinds of operations."""
    mine, theirs = s.operations[cut.index], s.theirs[cut.reference]
    return (cut.kind, mine.name, mine.line, mine.shape, theirs.name, theirs.line)


def _at_the_output(s: Substitution) -> list[Cut]:
    """Return a cut at the output's own operation. It is used if no other trial helps, because
    nothing after the output could be compared."""
    end, their_end = s.matching.port.output, s.matching.reference.output
    assert end is not None and their_end is not None
    maker = s.root(end)
    if maker not in s.port_side.frontier:
        return []
    fitting = _fitting(s, maker, their_end)
    return [Cut("replace", maker, root(s.theirs, their_end), fitting[0])] if fitting else []


def _fitting(s: Substitution, mine: int, theirs: int) -> list[Tensor]:
    """Return the first layouts, without transposes of earlier ones."""
    return _unturned(s.layouts(mine, theirs))[:_LAYOUTS]


class _Trials:
    """The trials: values of the reference, each at a place of the port."""

    def __init__(self, s: Substitution) -> None:
        self.s = s
        self._candidates = [*s.reference_side.unknown]
        self._distances = {index: n for n, index in enumerate(self._candidates)}
        self._turns: dict[int, int] = {}
        if s.matching.n_parts:
            self._add_parts()

    def _add_parts(self) -> None:
        """Add the parts of the reference's results, if the port computes part by part."""
        times: Counter[object] = Counter()
        for operation in self.s.operations:
            key = operation.lines, operation.name, operation.shape
            self._turns[operation.index] = times[key]
            times[key] += 1
        for index in self.s.matching.n_parts:
            whole = self.s.matching.whole(self.s.theirs[index]).index
            if whole in self._distances and not self.s.matching.is_used(index):
                self._candidates.append(index)
                self._distances[index] = self._distances[whole]

    def sorted(self) -> list[Cut]:
        """Return the trials, the likeliest first."""
        self.s.their_values(set(self._candidates))  # one run of the reference gives all of them
        ranked = [*self._replacements(), *self._bypasses(), *self._insertions()]
        return [cut for _, cut in sorted(ranked, key=lambda trial: trial[0])]

    def _replacements(self) -> Iterator[tuple[int, Cut]]:
        """Yield trials in which the reference's value replaces a result."""
        s = self.s
        for distance, index in enumerate(s.port_side.unknown):
            mine = s.operations[index]
            for their_index in self._candidates:
                theirs = s.theirs[their_index]
                if not self._can_replace(mine, theirs):
                    continue
                rank = distance + self._distances[their_index]
                if s.matching.whole(theirs).name != mine.name:
                    rank += _OTHER_OPERATION
                if index in s.port_side.joins and their_index in s.reference_side.joins:
                    rank //= _JOINED
                for n, value in enumerate(_fitting(s, index, their_index)):
                    yield rank + n * _OTHER_LAYOUT, s.at(mine, their_index, value)

    def _can_replace(self, mine: Operation, theirs: Operation) -> bool:
        # Positions that one counts are derived from the tokens by another.
        if mine.from_tokens and not theirs.from_tokens:
            return False
        # With one number for each row, a norm makes all that follows the same.
        if mine.from_tokens and mine.shape[-1:] > (1,) and theirs.shape[-1:] == (1,):
            return False
        if _counts(mine.dtype) and not _counts(theirs.dtype):
            return False
        return self._is_its_turn(mine.index, theirs)

    def _bypasses(self) -> Iterator[tuple[int, Cut]]:
        """Yield trials in which a known tensor replaces what is made from it."""
        s, entries = self.s, self.s.entries()
        values = {i: s.replay.value(i) for i in entries}
        for distance, index in enumerate(s.port_side.unknown[:_BYPASSED]):
            mine, made_of = s.operations[index], s.sources_of(index)
            if not mine.from_tokens or mine.is_leaf:
                continue
            for source in entries:
                if s.root(source) not in made_of:
                    continue
                theirs = s.matching.of_port[source].index
                for value in _unturned(list(layouts(values[source], mine.shape)))[:2]:
                    yield distance + _BYPASS, Cut("bypass", index, theirs, value, source)

    def _insertions(self) -> Iterator[tuple[int, Cut]]:
        """Yield trials in which an operation reads the reference's value instead of a known
        tensor."""
        s = self.s
        for source in s.entries():
            for their_index in self._candidates:
                mine, theirs = s.operations[source], s.theirs[their_index]
                if not theirs.from_tokens or math.prod(theirs.shape) < math.prod(mine.shape):
                    continue  # one number for a row of them makes all that follows the same
                if not self._is_its_turn(source, theirs):
                    continue
                for n, value in enumerate(_fitting(s, source, their_index)):
                    rank = self._distances[their_index] + _INSERTION + n * _OTHER_LAYOUT
                    for calls in self._wrong_readers(source):
                        first = next(o.index for o in s.operations if o.call in calls)
                        yield rank, Cut("insert", first, their_index, value, source, calls)

    def _is_its_turn(self, mine: int, theirs: Operation) -> bool:
        """Tell whether a part of the reference's result is the part that a loop of the port makes
        here: the n-th run of the line makes the n-th part."""
        n = self.s.matching.n_parts.get(theirs.index)
        return n is None or self._turns[mine] % n == theirs.nth

    def _wrong_readers(self, source: int) -> Iterator[frozenset[int]]:
        """Yield the calls that read a tensor on the way to unknown results; then only those calls
        that do not add it to another unknown tensor, as a residual does."""
        s = self.s
        readers = [s.operations[i] for i in s.matching.port_readers.get(source, ())]
        wrong = [o for o in readers if self._leads_to_unknown(o.index)]
        plain = [
            o
            for o in wrong
            if o.name not in ("add", "add_", "sub") or all(map(s.matching.knows, o.inputs))
        ]
        for calls in dict.fromkeys(frozenset(o.call for o in chosen) for chosen in (wrong, plain)):
            if calls:
                yield calls

    def _leads_to_unknown(self, index: int) -> bool:
        if not self.s.matching.knows(index):
            return True
        readers = self.s.matching.port_readers.get(index, ())
        return self.s.operations[index].reorders and any(map(self._leads_to_unknown, readers))


def _counts(dtype: torch.dtype) -> bool:
    """Tell whether a tensor holds whole numbers. No table of real numbers or flags replaces it."""
    return not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)


def _unturned(fitting: list[Tensor]) -> list[Tensor]:
    """Return the layouts without transposes of earlier ones: if queries and keys were exchanged, a
    softmax along the wrong axis would seem right."""
    if not fitting or fitting[0].dim() < 2 or fitting[0].shape[-1] != fitting[0].shape[-2]:
        return fitting
    turned = [layout.mT for layout in fitting]
    return [
        layout
        for n, layout in enumerate(fitting)
        if not any(torch.equal(layout, other) for other in turned[:n])
    ]
