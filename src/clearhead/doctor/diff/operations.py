"""What a recording holds: operations, the lines that made them, and what went into them."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from linecache import getline
from pathlib import Path
from typing import Any

import torch

from .fingerprints import Fingerprint, fingerprint


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of somebody's code."""

    file: str
    line: int
    function: str

    @property
    def text(self) -> str:
        """What stands there."""
        return getline(self.file, self.line).strip()

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}"


LEAVES = ("parameter", "buffer", "input", "constant")
"""What no operation of the run made: a constant is a tensor that is neither of the others."""

# The same numbers in another order or shape, or some of them.
_ORDER = {
    "view", "_unsafe_view", "reshape", "transpose", "t", "permute", "unsqueeze", "squeeze",
    "expand", "clone", "contiguous", "alias", "detach", "_reshape_alias", "flatten", "movedim",
    "repeat", "lift_fresh", "_to_copy", "to", "flip", "roll", "view_as_real", "view_as_complex",
    "unflatten", "repeat_interleave", "convert_element_type",
}  # fmt: skip
_PARTS = {"slice", "select", "split", "split_with_sizes", "chunk", "unbind", "narrow", "diagonal"}


@dataclass(slots=True)
class Operation:
    """One tensor of a run: the operation that made it, or a leaf."""

    index: int
    """Its number in the run: the same in every run of the same program on the same inputs."""
    name: str
    """torch's name without the overload, `mul`; one of LEAVES for a leaf."""
    lines: tuple[SourceLine, ...]
    """The user's lines on the stack, the innermost first."""
    inputs: tuple[int, ...]
    scalars: tuple[float, ...]
    shape: tuple[int, ...]
    dtype: torch.dtype
    from_tokens: bool
    """Whether its values depend on the inputs of the model."""
    label: str = ""
    """A leaf's name in the model."""
    part_of: str = ""
    """The fused operation that was decomposed into this one and others."""
    fingerprint: Fingerprint | None = None
    dims: tuple[int, ...] = ()
    """The whole numbers among its arguments: axes, sizes."""
    call: int = -1
    """The number of the call that made it; operations with several results share one."""
    frames: tuple[int, ...] = ()
    """For each line, the number of the function call that it belongs to."""
    noise: float = 0.0
    """How far a run in single precision is from one in double precision, here."""
    rounded: bool = False
    """Whether it depends on a table that one of the programs stores in single precision."""

    @property
    def is_leaf(self) -> bool:
        """Whether no operation made it."""
        return self.name in LEAVES

    @property
    def reorders(self) -> bool:
        """Whether it only puts the elements of its first input into another order or shape."""
        return self.name in _ORDER

    @property
    def selects(self) -> bool:
        """Whether it takes a part of its first input."""
        return self.name in _PARTS

    @property
    def line(self) -> SourceLine | None:
        """The innermost line of the user's."""
        return self.lines[0] if self.lines else None

    @property
    def key(self) -> tuple[Any, ...]:
        """What names it in a run of the same program in another precision."""
        return (self.name, self.label, self.lines[:3], self.shape)


def consumers(operations: Iterable[Operation]) -> dict[int, list[int]]:
    """For each operation, the ones that read it."""
    found: dict[int, list[int]] = {}
    for operation in operations:
        for source in dict.fromkeys(operation.inputs):
            found.setdefault(source, []).append(operation.index)
    return found


def shared_line(operation: Operation, others: list[Operation]) -> SourceLine | None:
    """The operation's line in the innermost function call that it shares with the others."""
    for frame, line in zip(operation.frames, operation.lines):
        if others and all(frame in other.frames for other in others):
            return line
    return None


@dataclass(frozen=True)
class Leaf:
    """A tensor that a model or its caller brings."""

    kind: str
    label: str
    tensor: torch.Tensor

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """Made when first asked for, and then kept: a table of words is large."""
        return fingerprint(self.tensor)


@cache
def own_folders() -> tuple[str, ...]:
    """Lines in these folders are not the user's: torch, and the doctor itself."""
    doctor = Path(__file__).parent.parent
    torch_folder = Path(torch.__file__).parent
    return (f"{torch_folder}/", f"{doctor}/")
