"""What a run does besides recording, and what is recorded of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .operations import LOW, Operation


@dataclass(frozen=True)
class Swap:
    """Another value for an input of some calls."""

    source: int
    """The operation whose result is replaced."""
    value: Tensor
    calls: frozenset[int] | None = None
    """The calls that read the other value; None: all calls."""


@dataclass(frozen=True)
class Plan:
    """What a run does besides recording."""

    replace: Mapping[int, Tensor] = field(default_factory=dict)
    """Values that replace results, by operation."""
    swaps: tuple[Swap, ...] = ()
    scalars: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    """By call: a number among its arguments, and the number that replaces it."""
    keep: frozenset[int] = frozenset()
    """The operations whose values are needed."""
    prints_from: int = 0
    """Results before this operation get no fingerprint."""
    stop_after: int | None = None
    """The run ends after this operation, because nothing later is needed."""
    precision: torch.dtype | None = torch.float64
    """The precision of all floating-point numbers; None: as the program sets it."""
    parts: frozenset[tuple[int, int]] = frozenset()
    """Results with so many elements are also recorded in parts, along each axis of the given size:
    the other program may compute the parts in a loop, for example over heads."""


def mapped(arguments: Any, change: Callable[[Any], Any]) -> Any:
    """Map each value in the arguments of an operation, which are nested at most once."""
    if isinstance(arguments, dict):
        return {name: mapped(value, change) for name, value in arguments.items()}
    if isinstance(arguments, list | tuple):
        return type(arguments)([mapped(value, change) for value in arguments])
    return change(arguments)


def tensors_in(arguments: Any) -> list[Tensor]:
    """Return the tensors among arguments or results, in their order."""
    found: list[Tensor] = []
    mapped(arguments, lambda value: found.append(value) if isinstance(value, Tensor) else None)
    return found


def like(value: Tensor, tensor: Tensor) -> Tensor:
    """Return a value in the shape and memory order of a tensor. The memory order decides whether a
    program that reshapes makes a copy. A data type of few bits is not adopted, because it would
    round the value."""
    value = value.to(value.dtype if tensor.dtype in LOW else tensor.dtype).reshape(tensor.shape)
    if 0 in tensor.stride() and tensor.numel() > 1:  # expanded: its elements share memory
        return value.clone()
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=value.dtype).copy_(value)


@dataclass(frozen=True)
class Slot:
    """The place of a tensor among the arguments of a call."""

    index: int
    """The operation that made the tensor."""


@dataclass(frozen=True)
class RecordedCall:
    """A call that can be repeated without the model."""

    func: Any
    args: Any
    kwargs: Any
    results: list[int] = field(default_factory=list)


@dataclass
class Recording:
    """What was recorded in a run."""

    operations: list[Operation]
    steps: list[RecordedCall]
    """The recorded calls by their number."""
    output: int | None
    """The operation that made the logits; None if the run was ended early."""
    logits: Tensor | None
    values: dict[int, Tensor]
    n_low: int = 0
    """The number of casts to a precision below 32 bits."""
