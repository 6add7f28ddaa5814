"""The form of a call: which tensor goes to which argument, and where the logits come back."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import nn

from clearhead.doctor.patient import Inputs
from clearhead.shapes import Tensor

CALL_ERRORS = (
    RuntimeError,
    TypeError,
    ValueError,
    IndexError,
    KeyError,
    AttributeError,
    AssertionError,
)
"""What a model raises at a call that it does not understand."""


@dataclass(frozen=True)
class MaskForm:
    argument: str
    shape: Literal["(batch, length)", "(batch, 1, length)", "(batch, 1, 1, length)"]
    true_is_real: bool
    dtype: torch.dtype

    def of(self, real: Tensor) -> Tensor:
        mask = (real if self.true_is_real else ~real).to(self.dtype)
        for _ in range(self.shape.count("1")):
            mask = mask[:, None]
        return mask

    def __str__(self) -> str:
        meaning = "real" if self.true_is_real else "padding"
        return f"{self.argument}=… {self.shape}, true: {meaning}"


@dataclass(frozen=True)
class Form:
    tokens: str | None
    """The keyword for the tokens; None: they are the last positional argument."""
    vocab_size: int
    two_sequences: bool = False
    targets: str | None = None
    """An argument that must be given before the logits of all positions come back."""
    constants: dict[str, Any] = field(default_factory=dict)
    masks: dict[str, MaskForm] = field(default_factory=dict)
    """For "real" and "source_real"."""

    def call(self, model: nn.Module, inputs: Inputs, **more: Any) -> Any:
        args = [inputs.source] if self.two_sequences else []
        kwargs = {**self.constants, **self._masks(model, inputs)}
        if self.tokens is None:
            args.append(inputs.tokens)
        else:
            kwargs[self.tokens] = inputs.tokens
        if self.targets is not None:
            kwargs[self.targets] = inputs.tokens
        return model(*args, **{**kwargs, **more})

    def logits(self, model: nn.Module, inputs: Inputs) -> Tensor:
        return self.check(logits_in(self.call(model, inputs)), inputs)

    def check(self, logits: Tensor | None, inputs: Inputs) -> Tensor:
        shape = (*inputs.tokens.shape, self.vocab_size)
        if logits is None or tuple(logits.shape) != shape:
            was = "no tensor" if logits is None else str(tuple(logits.shape))
            raise ValueError(f"logits should be (batch, length, vocab_size) = {shape}, got {was}")
        return logits

    def _masks(self, model: nn.Module, inputs: Inputs) -> dict[str, Tensor]:
        given: dict[str, Tensor] = {}
        for role, mask in self.masks.items():
            real: Tensor | None = getattr(inputs, role)
            if real is None:
                continue
            given[mask.argument] = mask.of(real)
            if role == "real" and "position_ids" in arguments_of(model):
                # Where the caller may say where tokens stand, padding on the left is the
                # caller's business, and we are the caller.
                given["position_ids"] = (real.long().cumsum(dim=1) - 1).clamp(min=0)
        return given


def arguments_of(model: nn.Module, method: str = "forward") -> dict[str, inspect.Parameter]:
    function: Callable[..., Any] | None = getattr(model, method, None)
    return dict(inspect.signature(function).parameters) if callable(function) else {}


def logits_in(output: Any) -> Tensor | None:
    """A tensor; what has `.logits`; a dict with "logits"; the first of a tuple."""
    if isinstance(output, torch.Tensor):
        return output
    if isinstance(output, dict) and "logits" in output:
        return output["logits"]
    if isinstance(found := getattr(output, "logits", None), torch.Tensor):
        return found
    return logits_in(output[0]) if isinstance(output, tuple | list) and output else None
