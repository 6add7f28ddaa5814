"""Finds the logits, and the other tensors, in what a model returned."""

from dataclasses import is_dataclass
from typing import Any

import torch
from torch import Tensor


def logits_in(
    output: Any,
    shape: tuple[int, ...],
    vocab_size: int | None,
    length_first: bool = False,
    flat: bool = False,
) -> Tensor | None:
    """Return a tensor of (batch, length, vocab), or if `flat` of (batch · length, vocab). It may be
    the output itself, `.logits`, the entry "logits" of a dict, or the first such tensor in a tuple,
    a dict or a dataclass."""
    batch, length = shape[:2]
    for tensor in candidates(output):
        if vocab_size is not None and tensor.shape[-1:] != (vocab_size,):
            continue
        if tensor.dim() == 3 and length_first and tensor.shape[:2] == (length, batch):
            return tensor.transpose(0, 1)
        if tensor.dim() == 3 and not length_first and tensor.shape[:2] == (batch, length):
            return tensor
        if flat and tensor.dim() == 2 and len(tensor) == batch * length:
            return tensor.view(batch, length, -1)
    return None


def states_in(output: Any, shape: tuple[int, ...], length_first: bool = False) -> Tensor:
    """Return the hidden states (batch, length, width) in an output. Raises if there are none."""
    states = logits_in(output, shape, None, length_first)
    if states is None:
        raise ValueError(
            f"no states of (batch, length, width) were returned, but {describe(output)}"
        )
    return states


def candidates(output: Any) -> list[Tensor]:
    """Return the tensors in an output that may be its logits."""
    if isinstance(output, torch.Tensor):
        return [output]
    if isinstance(output, dict):
        return candidates(output["logits"] if "logits" in output else list(output.values()))
    if isinstance(logits := getattr(output, "logits", None), torch.Tensor):
        return [logits]
    if is_dataclass(output):
        return candidates(list(vars(output).values()))
    if isinstance(output, tuple | list):
        return [tensor for item in output for tensor in candidates(item)]
    return []


def tensors_in(output: Any) -> list[Tensor]:
    """Return all tensors in an output."""
    if isinstance(output, torch.Tensor):
        return [output]
    if isinstance(output, dict):
        output = list(output.values())
    elif is_dataclass(output):
        output = list(vars(output).values())
    items = output if isinstance(output, tuple | list) else []
    return [tensor for item in items for tensor in tensors_in(item)]


def describe(output: Any) -> str:
    """Describe in a few words what the model returned."""
    if isinstance(output, torch.Tensor):
        return str(tuple(output.shape))
    if isinstance(output, tuple | list):
        return "(" + ", ".join(describe(item) for item in output[:4]) + ")"
    if isinstance(output, dict):
        return "{" + ", ".join(f"{key}: {describe(v)}" for key, v in list(output.items())[:4]) + "}"
    return "nothing" if output is None else type(output).__name__
