"""Copies of a model that share nothing with it, even where `copy.deepcopy` fails."""

import copy
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from .witness import watching


def copy_model(model: nn.Module, *, share_weights: bool = False) -> nn.Module:
    """Return a deep copy. Tensors that a model has kept with their graph (attention weights of the
    last call) are copied without the graph. Functions that a model keeps, and whose closures hold
    modules of the model, hold modules of the copy. With `share_weights` the parameters themselves
    are shared."""
    memo: dict[int, Any] = {}
    for module in model.modules():
        for value in vars(module).values():
            _without_graph(value, memo)
    if share_weights:
        memo.update({id(parameter): parameter for parameter in model.parameters()})
    twin = copy.deepcopy(model, memo)
    for module in twin.modules():
        for name, value in vars(module).items():
            rebound = _rebound(value, memo)
            if rebound is not value:
                vars(module)[name] = rebound
    return twin


def calls_the_original(model: nn.Module, twin: nn.Module, call: Callable[[], Any]) -> str | None:
    """Return the path of the first module of the model that runs when only its copy is called."""
    seen: list[str] = []
    own = {id(module) for module in twin.modules()}

    def enter(path: str, module: nn.Module) -> None:
        if id(module) not in own:
            seen.append(path)

    with torch.no_grad(), watching(model, enter=enter):
        call()
    return seen[0] if seen else None


def _without_graph(value: Any, memo: dict[int, Any], depth: int = 3) -> None:
    if isinstance(value, torch.Tensor):
        if value.grad_fn is not None:
            memo[id(value)] = value.detach().clone()
    elif depth and not isinstance(value, nn.Module):
        for item in _inside(value):
            _without_graph(item, memo, depth - 1)


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list | tuple | set):
        yield from value
    elif hasattr(value, "__dict__") and not callable(value):
        yield from vars(value).values()


def _rebound(value: Any, memo: dict[int, Any]) -> Any:
    if isinstance(value, list) and any(isinstance(item, types.FunctionType) for item in value):
        return [_rebound(item, memo) for item in value]
    if not isinstance(value, types.FunctionType):
        return value
    held = [cell.cell_contents for cell in value.__closure__ or () if _is_full(cell)]
    held += list(value.__defaults__ or ())
    if not any(isinstance(item, nn.Module | torch.Tensor | list | dict) for item in held):
        return value
    cells = tuple(
        types.CellType(_copied(cell.cell_contents, memo)) if _is_full(cell) else cell
        for cell in value.__closure__ or ()
    )
    defaults = tuple(_copied(item, memo) for item in value.__defaults__ or ()) or None
    rebound = types.FunctionType(
        value.__code__, value.__globals__, value.__name__, defaults, cells or None
    )
    rebound.__kwdefaults__ = value.__kwdefaults__
    return rebound


def _is_full(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # a name that was never given a value
        return False


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    kinds = (nn.Module, torch.Tensor, list, tuple, dict)
    return copy.deepcopy(value, memo) if isinstance(value, kinds) else value
