"""Finds the end-of-sequence token that a model's own generation reads, and replaces it for a
while."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType
from typing import Any

import torch
from torch import nn

NAMES = (
    "eos_token_id",
    "eos_id",
    "eos",
    "eos_token",
    "eos_idx",
    "eos_index",
    "end_id",
    "end_token",
    "end_token_id",
    "stop_id",
    "stop_token",
    "stop_token_id",
    "eot_id",
    "eot_token",
    "eot_token_id",
)
"""Names of an end token, as an argument, an attribute or a constant."""


@dataclass(frozen=True)
class EndToken:
    """Where a method finds its end token."""

    name: str
    owner: str | None = None
    """The attribute of the model that holds the end token, such as a configuration; None: the model
    itself."""
    of_the_file: dict[str, Any] | None = None
    """The names of the file, if the file holds the end token as a constant."""

    @contextmanager
    def replaced(self, model: nn.Module, value: int) -> Iterator[None]:
        """Replace the model's end token inside the block."""
        holder: Any = model if self.owner is None else getattr(model, self.owner)
        holder = self.of_the_file if self.of_the_file is not None else holder
        if isinstance(holder, dict):
            own = holder[self.name]
            holder[self.name] = value
            try:
                yield
            finally:
                holder[self.name] = own
            return
        own = vars(holder).get(self.name)
        # Also where a configuration is frozen: the copy is the doctor's own.
        object.__setattr__(holder, self.name, value)
        try:
            yield
        finally:
            if own is None:
                object.__delattr__(holder, self.name)
            else:
                object.__setattr__(holder, self.name, own)


def end_read_by(model: nn.Module, method: str) -> EndToken | None:
    """Return where a method finds its end token: in the model, in something that the model holds,
    or in its file."""
    function = inspect.unwrap(getattr(type(model), method, None) or getattr(model, method))
    read = _names_read(type(model), function)
    ends = [name for name in read if name.lower() in NAMES]
    holders = [name for name in read if _is_plain(getattr(model, name, None))]
    for name in ends:
        if _is_token(getattr(model, name, None)):
            return EndToken(name)
        for holder in holders:
            held = getattr(model, holder)
            value = held.get(name) if isinstance(held, dict) else getattr(held, name, None)
            if _is_token(value):
                return EndToken(name, holder)
        constants = getattr(function, "__globals__", {})
        if _is_token(constants.get(name)):
            return EndToken(name, of_the_file=constants)
    return None


def mentions_an_end(model: nn.Module, method: str) -> bool:
    """Tell whether the code of a method, or of the methods that it calls, names an end token."""
    function = inspect.unwrap(getattr(type(model), method, None) or getattr(model, method))
    return any(name.lower() in NAMES for name in _names_read(type(model), function))


def _names_read(kind: type, function: Any, depth: int = 2) -> list[str]:
    """Return the names and texts (attributes, constants and keys) in the code of a function and of
    the methods of the class that it calls."""
    code = getattr(function, "__code__", None)
    names = list(_names_in(code)) if isinstance(code, CodeType) else []
    if depth:
        for name in list(names):
            own = inspect.unwrap(getattr(kind, name, None) or (lambda: None))
            if name not in vars(nn.Module) and inspect.isfunction(own):
                names += _names_read(kind, own, depth - 1)
    return list(dict.fromkeys(names))


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    yield from code.co_freevars
    for constant in code.co_consts:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, CodeType):
            yield from _names_in(constant)


def _is_token(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_plain(value: Any) -> bool:
    """Tell whether a value may hold settings: it is no layer, no tensor and no method."""
    if value is None or callable(value) or isinstance(value, nn.Module | torch.Tensor):
        return False
    return isinstance(value, dict) or hasattr(value, "__dict__")
