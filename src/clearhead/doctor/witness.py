"""Seeing inside: what every module was given and returned during a call, and from this, the
first module at which something arrived that should not have."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from clearhead.shapes import Tensor


@dataclass(frozen=True)
class Visit:
    """One call of one module."""

    path: str
    module: nn.Module
    given: list[Tensor]
    returned: list[Tensor]


def watch(model: nn.Module, call: Callable[[], Any]) -> list[Visit]:
    """Every module's visits during the call, in the order in which they ended: the innermost
    module that does something is always before the ones around it."""
    visits: list[Visit] = []
    with ExitStack() as stack:
        for path, module in model.named_modules():
            # ModuleLists and the like are never called.
            def hook(
                module: nn.Module, args: Any, kwargs: Any, output: Any, path: str = path
            ) -> None:
                visits.append(Visit(path, module, tensors([args, kwargs]), tensors(output)))

            stack.callback(module.register_forward_hook(hook, with_kwargs=True).remove)
        call()
    return visits


def tensors(value: Any) -> list[Tensor]:
    """The floating-point tensors in a nest of tuples, lists, dicts and output objects."""
    match value:
        case torch.Tensor():
            # Copies: code in place may write into them afterwards.
            return [value.detach().clone()] if value.is_floating_point() else []
        case dict():
            return [t for item in value.values() for t in tensors(item)]
        case list() | tuple():
            return [t for item in value for t in tensors(item)]
        case _:
            return []


Change = Callable[[Tensor, Tensor], bool]
"""Whether the part of a tensor that is asked about differs between two calls."""


def first_change(before: list[Visit], after: list[Visit], changed: Change) -> str | None:
    """The innermost module in which a change appears for the first time."""
    for one, other in zip(before, after):
        if one.path != other.path:
            return None  # the two calls took different ways
        if _any_change(one.returned, other.returned, changed):
            if _any_change(one.given, other.given, changed):
                # It came in from outside: code between modules, in the parent's forward.
                return one.path.rpartition(".")[0]
            return one.path
    return None


def first_loss(before: list[Visit], after: list[Visit], changed: Change) -> str | None:
    """The innermost module into which a change goes and out of which it does not come."""
    for one, other in zip(before, after):
        came = one.returned and _any_change(one.given, other.given, changed)
        if came and not _any_change(one.returned, other.returned, changed):
            return one.path
    return None


def _any_change(one: list[Tensor], other: list[Tensor], changed: Change) -> bool:
    return any(a.shape == b.shape and changed(a, b) for a, b in zip(one, other))


def differs(one: Tensor, other: Tensor, tolerance: float) -> bool:
    size = one.double().square().mean().sqrt().clamp(min=1e-12)
    return not bool(((one - other).double().abs().max() <= tolerance * size).item())


def axis_of(tensor: Tensor, size: int) -> int | None:
    """The one axis of this size, counted from the end; None if there is none or several."""
    axes = [axis for axis in range(-tensor.dim(), 0) if tensor.shape[axis] == size]
    return axes[0] if len(axes) == 1 else None
