"""Looks inside a call: what every module received and what it returned. From this, finds the first
module that received something it should not have."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Visit:
    """One call of one module."""

    path: str
    module: nn.Module
    given: list[Tensor]
    returned: list[Tensor]


def watch(model: nn.Module, call: Callable[[], Any]) -> list[Visit]:
    """Return every module's visits during the call, in the order in which they ended: the innermost
    module that does something always comes before the modules around it."""
    visits: list[Visit] = []

    def leave(path: str, module: nn.Module, given: Any, output: Any) -> None:
        visits.append(Visit(path, module, tensors(given), tensors(output)))

    with watching(model, leave=leave):
        call()
    return visits


@contextmanager
def watching(
    model: nn.Module,
    *,
    enter: Callable[[str, nn.Module], None] | None = None,
    give: Callable[[str, Any, Any], tuple[Any, Any]] | None = None,
    leave: Callable[[str, nn.Module, Any, Any], Any] | None = None,
    end: Callable[[], None] | None = None,
) -> Iterator[None]:
    """Call `enter` before and `leave` after every module's forward, with its arguments and its
    result. A result of `leave` that is not None replaces the output, and one of `give` replaces the
    arguments. `end` is called last, even if forward raises, since the model may catch that. Forward
    itself is wrapped: a hook would not see code that calls `.forward()` instead of the module."""
    own: list[tuple[nn.Module, Any]] = []

    def wrap(path: str, module: nn.Module) -> None:
        forward = module.forward

        @functools.wraps(forward)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if enter is not None:
                enter(path, module)
            if give is not None:
                args, kwargs = give(path, args, kwargs)
            try:
                output = forward(*args, **kwargs)
                instead = None if leave is None else leave(path, module, [args, kwargs], output)
                return output if instead is None else instead
            finally:
                if end is not None:
                    end()

        own.append((module, vars(module).get("forward")))
        vars(module)["forward"] = watched

    for path, module in model.named_modules():
        wrap(path, module)
    try:
        yield
    finally:
        for module, forward in own:
            if forward is None:
                del vars(module)["forward"]
            else:
                vars(module)["forward"] = forward


def tensors(value: Any) -> list[Tensor]:
    """Return the floating-point tensors in nested tuples, lists, dicts and output objects."""
    match value:
        case torch.Tensor():
            # Copies: code in place may write into them afterwards.
            return [value.detach().clone()] if value.is_floating_point() else []
        case dict():
            return [t for item in value.values() for t in tensors(item)]
        case list() | tuple():
            return [t for item in value for t in tensors(item)]
        case _ if is_dataclass(value):
            return tensors(vars(value))
        case _:
            return []


Change = Callable[[Tensor, Tensor], bool]
"""Tells whether the relevant part of a tensor differs between two calls."""


def first_change(before: list[Visit], after: list[Visit], changed: Change) -> str | None:
    """Return the innermost module in which a change appears for the first time."""
    pairs = list(zip(before, after))
    for index, (one, other) in enumerate(pairs):
        if one.path != other.path:
            return None  # the two calls took different ways
        if _any_change(one.returned, other.returned, changed):
            return _where_it_came_from(pairs[index:], changed)
    return None


def _where_it_came_from(pairs: list[tuple[Visit, Visit]], changed: Change) -> str:
    """Return the module of the first pair, if it did not receive the change. Otherwise, return the
    innermost module around it that did not receive the change: the cause is code between modules,
    in the forward of that module."""
    path = pairs[0][0].path
    while path:
        given = next(((one.given, other.given) for one, other in pairs if one.path == path), None)
        # A list of modules is never called: what its members are given comes from around it.
        if given is not None and not _any_change(*given, changed):
            break
        path = path.rpartition(".")[0]
    return path


def first_loss(before: list[Visit], after: list[Visit], changed: Change) -> str | None:
    """Return the innermost module that receives a change and does not pass it on."""
    for one, other in zip(before, after):
        came = one.returned and _any_change(one.given, other.given, changed)
        if came and not _any_change(one.returned, other.returned, changed):
            return one.path
    return None


def _any_change(one: list[Tensor], other: list[Tensor], changed: Change) -> bool:
    return any(a.shape == b.shape and changed(a, b) for a, b in zip(one, other))


def differs(one: Tensor, other: Tensor, tolerance: float) -> bool:
    """Tell whether two results differ by more than the tolerance, relative to the size of the
    first."""
    size = one.double().square().mean().sqrt().clamp(min=1e-12)
    return not bool(((one - other).double().abs().max() <= tolerance * size).item())


def axis_of(tensor: Tensor, size: int) -> int | None:
    """Return the one axis of this size, counted from the end; None if there is none or there are
    several."""
    axes = [axis for axis in range(-tensor.dim(), 0) if tensor.shape[axis] == size]
    return axes[0] if len(axes) == 1 else None
