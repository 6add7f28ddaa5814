"""Replays a part of a run without the model. Only operations that depend on a changed value are
computed again, so that hundreds of changes can be tried."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .decomposing import without_fused_kernels
from .operations import Operation
from .recorded import RecordedCall, Recording, Slot, Swap, like, mapped, tensors_in
from .sides import Program


class CannotReplayError(Exception):
    """Raised if memory that several tensors share was written to. Then only the model itself can be
    run again."""


@dataclass
class ChangedValues:
    """Values that are changed in a replay."""

    replace: Mapping[int, Tensor] = field(default_factory=dict)
    swaps: tuple[Swap, ...] = ()
    scalars: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    """By call: a number among its arguments, and the number that replaces it."""
    dims: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """By call: an axis among its arguments, and the axis that replaces it."""


class Replay:
    """The operations that depend on some tensors, up to a last operation, and all values that they
    need."""

    def __init__(
        self, side: Program, recording: Recording, seeds: Iterable[int], last: int
    ) -> None:
        self.side, self.recording = side, recording
        self.operations = recording.operations
        self.last = last
        self._leaves = {leaf.label: leaf for leaf in side.leaves.values()}
        reached = set(seeds)
        calls: list[int] = []
        for operation in self.operations[: last + 1]:
            if reached.intersection(operation.inputs) or operation.index in reached:
                reached.add(operation.index)
                if operation.call >= 0 and operation.name != "written":
                    calls.append(operation.call)
        self.calls = sorted(set(calls))
        self._slots = {call: _slots(recording.steps[call]) for call in self.calls}
        needed = {i for i in reached if i <= last}
        needed |= {i for slots in self._slots.values() for i in slots}
        self.values = side.values({i for i in needed if not self._is_light(i)})
        # Memory that was written through another view of it.
        self._shared = {i for i in reached if self.operations[i].name == "written"}

    def _is_light(self, index: int) -> bool:
        """Tell whether a tensor is a parameter or a view of one. Its value is not kept, since it
        may be large."""
        operation = self.operations[index]
        if operation.name == "parameter":
            return True
        return operation.reorders and bool(operation.inputs) and self._is_light(operation.inputs[0])

    def value(self, index: int) -> Tensor:
        """Return the result of an operation in the original run."""
        if index in self.values:
            return self.values[index]
        operation = self.operations[index]
        if operation.name == "parameter":
            return self._leaves[operation.label].tensor.to(torch.float64)
        if self._is_light(index):
            step = self.recording.steps[operation.call]
            return _run(step, lambda i: self.value(i), {})[0]
        self.values |= self.side.values({index})
        return self.values[index]

    def change(self, change: ChangedValues, stop_after: int | None = None) -> dict[int, Tensor]:
        """Return the results that differ after this change."""
        last = self.last if stop_after is None else min(stop_after, self.last)
        changed = {
            i: like(value, self.value(i)) for i, value in change.replace.items() if i <= self.last
        }
        with torch.no_grad(), without_fused_kernels():
            for call in self.calls:
                step = self.recording.steps[call]
                if step.results and step.results[0] > last:
                    break
                slots = self._slots[call]
                own = [s for s in change.swaps if s.calls is None or call in s.calls]
                here = {s.source: s.value for s in own if s.source in slots}
                edited = call in change.scalars or call in change.dims
                if not (here or edited or any(i in changed for i in slots)):
                    continue
                if any(i in self._shared and i not in here for i in slots):
                    raise CannotReplayError

                def value(i: int, here: dict[int, Tensor] = here) -> Tensor:
                    if i in here:
                        return like(here[i], self.value(i))
                    return changed[i] if i in changed else self.value(i)

                results = _run(step, value, _edits(change, call))
                for index, tensor in zip(step.results, results):
                    if index not in change.replace:
                        changed[index] = tensor
        return changed


def _edits(change: ChangedValues, call: int) -> dict[str, tuple[float, float]]:
    found: dict[str, tuple[float, float]] = {}
    if call in change.scalars:
        found["scalar"] = change.scalars[call]
    if call in change.dims:
        found["dim"] = change.dims[call]
    return found


def _slots(step: RecordedCall) -> list[int]:
    found: list[int] = []

    def note(value: Any) -> None:
        if isinstance(value, Slot):
            found.append(value.index)

    mapped((step.args, step.kwargs), note)
    return found


def _run(step: RecordedCall, value_of: Any, edits: dict[str, tuple[float, float]]) -> list[Tensor]:
    writes = step.func._schema.is_mutable

    def filled(argument: Any) -> Any:
        if isinstance(argument, Slot):
            tensor = value_of(argument.index)
            return tensor.clone() if writes else tensor
        for kind, (before, after) in edits.items():
            fits = isinstance(argument, int | float) and not isinstance(argument, bool)
            if fits and argument == before and (kind == "scalar" or isinstance(argument, int)):
                return after
        return argument

    args, kwargs = mapped((step.args, step.kwargs), filled)
    return tensors_in(step.func(*args, **kwargs))


def is_computed(operation: Operation) -> bool:
    """Tell whether an operation computes numbers, and does not only reorder or provide them."""
    return not (operation.reorders or operation.is_leaf)
