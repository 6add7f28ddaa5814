"""Collects what is known about one departure before anything judges its cause."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..form import CALL_ERRORS
from .cuts import Cut
from .fingerprints import fingerprint
from .layouts import aligned, relative
from .operations import Operation, SourceLine
from .replaying import CannotReplayError, ChangedValues, Replay
from .substituting import Substitution

SAME = 1e-6
"""A tensor that an experiment computes counts as the reference's if the difference is at most this
share of its size."""


@dataclass(frozen=True)
class Cause:
    """Why the port departs: a change that makes the two programs agree."""

    kind: str
    """The key of the sentence that states the cause."""
    facts: dict[str, Any] = field(default_factory=dict)
    lines: tuple[SourceLine, ...] = ()
    """Where the change belongs, if that is not where the departure was seen."""


class Evidence:
    """A cut, its value in each program, and the operations between this place and the common
    tensors."""

    def __init__(self, substitution: Substitution, cut: Cut) -> None:
        self.s, self.cut = substitution, cut
        self.mine: Operation = substitution.operations[cut.index]
        self.theirs: Operation = substitution.theirs[cut.reference]
        self.at = cut.index if cut.kind in ("replace", "bypass") else cut.source
        """The tensor of the port in whose place the reference's value goes."""
        self.wanted = cut.value.to(torch.float64)

    @cached_property
    def own(self) -> Tensor:
        """Return the port's value."""
        return self.s.replay.value(self.at).to(torch.float64).reshape(self.wanted.shape)

    @cached_property
    def difference(self) -> float:
        """Return the difference of the two values, as a share of their size."""
        return relative(self.own, self.wanted)

    @cached_property
    def region(self) -> list[Operation]:
        """Return the port's operations between common tensors and this place, in their order."""
        return self._between(self.s.operations, self.cut.index, self.s.matching.knows)

    @cached_property
    def their_region(self) -> list[Operation]:
        """Return the reference's operations between common tensors and this place."""
        return self._between(self.s.theirs, self.cut.reference, self.s.matching.is_used)

    def _between(self, operations: list[Operation], end: int, is_known: Any) -> list[Operation]:
        seen: set[int] = set()
        todo = [end]
        while todo:
            index = todo.pop()
            if index in seen or (index != end and is_known(index)):
                continue
            seen.add(index)
            todo += operations[index].inputs
        return [operations[i] for i in sorted(seen)]

    @cached_property
    def entries(self) -> list[int]:
        """Return the common tensors that the region reads and that depend on the tokens."""
        inside = {o.index for o in self.region}
        found = [
            self.s.root(i)
            for o in self.region
            for i in o.inputs
            if i not in inside and self.s.operations[i].from_tokens
        ]
        return list(dict.fromkeys(found))

    def value(self, index: int) -> Tensor:
        """Return a tensor of the port."""
        return self.s.replay.value(index).to(torch.float64)

    def is_wanted(self, tensor: Tensor) -> bool:
        """Tell whether a tensor from an experiment equals the reference's value."""
        if tensor.numel() != self.wanted.numel():
            return False
        return relative(tensor.reshape(self.wanted.shape), self.wanted) <= self.bound

    @cached_property
    def bound(self) -> float:
        """Return the difference that counts as equal here: the noise if tables are rounded, else a
        bound far below the difference that was found."""
        noise = 8 * max(self.mine.noise, self.theirs.noise)
        bound = max(SAME / 100, noise if self.mine.rounded or self.theirs.rounded else 0.0)
        return min(bound, self.difference / 10)

    def agrees_with(self, change: ChangedValues) -> bool:
        """Tell whether the port's own operations give the reference's value after a change of one
        of them."""
        replay = self.s.replay if self.mine.from_tokens else self.table_replay
        try:
            made = replay.change(change, stop_after=self.cut.index)
        except (CannotReplayError, *CALL_ERRORS):
            return False
        return self.cut.index in made and self.is_wanted(made[self.cut.index].to(torch.float64))

    @cached_property
    def table_replay(self) -> Replay:
        """Return a replay of the operations that make the port's table, from their beginning."""
        end = self.at if not self.s.operations[self.at].from_tokens else self.cut.index
        return Replay(self.s.port, self.s.matching.port, self.makers(end), end)

    def makers(self, index: int) -> list[int]:
        """Return the operations of the port on which a tensor depends, leaves included, in their
        order."""
        found: set[int] = set()
        todo = [index]
        while todo:
            found.add(todo[-1])
            todo += [i for i in self.s.operations[todo.pop()].inputs if i not in found]
        return sorted(found)

    def common_tensor(self, tensor: Tensor) -> Operation | None:
        """Return the operation of the reference that has these values in this order, if there is
        one. Constant values and whole numbers, which count or look up, are left out because too
        many tensors equal them."""
        at = self.s.operations[self.s.root(self.at)]
        if not at.dtype.is_floating_point or tensor.numel() < 2:
            return None
        if float(tensor.abs().max()) < 1e-12 or bool((tensor == tensor.flatten()[0]).all()):
            return None
        probe = replace(self.theirs, index=0, inputs=(), fingerprint=fingerprint(tensor))
        probe.from_tokens = False
        equal = self.s.matching.equals([probe]).get(0)
        if equal is None:
            return None
        value = self.s.their_values({equal.index})[equal.index]
        for axis in range(tensor.dim()):  # a bias is the same for all rows
            first = tensor.narrow(axis, 0, 1)
            if value.numel() < tensor.numel() and relative(tensor, first.expand_as(tensor)) < SAME:
                tensor = first
        return None if aligned(tensor, value, SAME) is None else self.s.theirs[equal.index]

    def scalar_operations(self) -> Iterator[tuple[Operation, float]]:
        """Return the operations of the region that compute with a number, the latest first."""
        for operation in reversed(self.region):
            for scalar in dict.fromkeys(operation.scalars):
                yield operation, scalar
