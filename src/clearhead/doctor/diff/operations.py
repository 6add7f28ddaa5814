"""The content of a recording: operations, the lines that made them, and their inputs."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from linecache import getline
from pathlib import Path
from typing import Any

import torch

from .fingerprints import Fingerprint, fingerprint


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the user's source code."""

    file: str
    line: int
    function: str

    @property
    def text(self) -> str:
        """Return the text of the line."""
        return getline(self.file, self.line).strip()

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}"


LOW = (torch.bfloat16, torch.float16)
"""Number formats to which a cast rounds."""
LEAVES = ("parameter", "buffer", "input", "constant")
"""Kinds of tensors that no operation of the run made. A constant is neither a parameter nor a
buffer nor an input."""

# The same numbers in another order or shape, or some of them.
_ORDER = {
    "view", "_unsafe_view", "reshape", "transpose", "t", "permute", "unsqueeze", "squeeze",
    "expand", "clone", "contiguous", "alias", "detach", "_reshape_alias", "flatten", "movedim",
    "repeat", "lift_fresh", "_to_copy", "to", "flip", "roll", "view_as_real", "view_as_complex",
    "unflatten", "repeat_interleave", "convert_element_type",
}  # fmt: skip
# In the same order, in another shape.
_VIEWS = {
    "view", "_unsafe_view", "reshape", "clone", "contiguous", "_to_copy", "to", "alias", "detach",
    "unsqueeze", "squeeze", "flatten", "unflatten", "_reshape_alias",
}  # fmt: skip
_ADDS = {"add", "add_", "mul", "mul_", "div", "div_", "sub"}
_PARTS = {"slice", "select", "split", "split_with_sizes", "chunk", "unbind", "narrow", "diagonal"}


@dataclass(slots=True)
class Operation:
    """One tensor of a run: the operation that made it, or a leaf."""

    index: int
    """The number of the operation in its run: the same in every run of the same program on the same
    inputs."""
    name: str
    """torch's name without the overload, such as `mul`; one of LEAVES for a leaf."""
    lines: tuple[SourceLine, ...]
    """The user's lines on the stack, the innermost first."""
    inputs: tuple[int, ...]
    scalars: tuple[float, ...]
    shape: tuple[int, ...]
    dtype: torch.dtype
    from_tokens: bool
    """True if the values depend on the inputs of the model."""
    label: str = ""
    """For a leaf, its name in the model."""
    part_of: str = ""
    """The fused operation that was decomposed into this operation and others."""
    fingerprint: Fingerprint | None = None
    dims: tuple[int, ...] = ()
    """The whole numbers among the arguments: axes and sizes."""
    call: int = -1
    """The number of the call that made the tensor; operations with several results share one."""
    frames: tuple[int, ...] = ()
    """For each line, the number of the function call that it belongs to."""
    noise: float = 0.0
    """The distance here between a run in single precision and a run in double precision."""
    rounded: bool = False
    """True if the tensor depends on a table that one of the programs stores in single precision."""
    nth: int | None = None
    """The number of the part of its input that this tensor is, if the other program computes part
    by part, in a loop."""

    @property
    def is_leaf(self) -> bool:
        """Tell whether no operation made the tensor."""
        return self.name in LEAVES

    @property
    def reorders(self) -> bool:
        """Tell whether the operation only puts the elements of its first input into another order
        or shape."""
        return self.name in _ORDER

    @property
    def is_view(self) -> bool:
        """Tell whether the operation only gives its first input another shape, in which the
        elements keep their order."""
        return self.name in _VIEWS and not self.dtype.is_complex

    @property
    def selects(self) -> bool:
        """Tell whether the operation takes a part of its first input."""
        return self.name in _PARTS

    @property
    def is_whole(self) -> bool:
        """Tell whether the tensor holds only whole numbers, as far as its fingerprint shows."""
        found = self.fingerprint
        return found is not None and all(value.is_integer() for value in found.ranks)

    @property
    def counts(self) -> bool:
        """Tell whether the tensor holds different whole numbers."""
        return self.is_whole and len(set(self.fingerprint.ranks if self.fingerprint else ())) > 2

    @property
    def line(self) -> SourceLine | None:
        """The innermost line of the user's code."""
        return self.lines[0] if self.lines else None

    @property
    def key(self) -> tuple[Any, ...]:
        """A key that names the operation in a run of the same program in another precision."""
        return (self.name, self.label, self.lines[:3], self.shape)


def consumers(operations: Iterable[Operation]) -> dict[int, list[int]]:
    """Return, for each operation, the operations that read it."""
    found: dict[int, list[int]] = {}
    for operation in operations:
        for source in dict.fromkeys(operation.inputs):
            found.setdefault(source, []).append(operation.index)
    return found


def root(operations: list[Operation], index: int) -> int:
    """Return the operation whose elements this operation only puts into another order."""
    while operations[index].reorders and operations[index].inputs:
        index = operations[index].inputs[0]
    return index


def split_shape(
    operations: list[Operation], readers: dict[int, list[int]], index: int
) -> tuple[int, ...]:
    """Return a tensor's shape before lengths and batches were merged for a product, or after they
    are split again: this shape shows their order. The last axis does not change."""
    here = operations[index]

    def fits(operation: Operation) -> bool:
        same = math.prod(operation.shape) == math.prod(here.shape)
        return same and operation.shape[-1:] == here.shape[-1:]

    added = [operations[i] for i in readers.get(index, ())]
    todo = [here, *(o for o in added if o.name in _ADDS and fits(o))]
    found = [o for made in todo for o in _views_of(operations, readers, made.index)]
    before = here
    while before.is_view and before.shape == here.shape:
        before = operations[before.inputs[0]]
    found.append(before)
    shapes = [here.shape, *(o.shape for o in found if fits(o))]
    return max(shapes, key=lambda shape: sum(n > 1 for n in shape))


def _views_of(
    operations: list[Operation], readers: dict[int, list[int]], index: int
) -> Iterator[Operation]:
    for i in readers.get(index, ()):
        if operations[i].is_view:
            yield operations[i]
            yield from _views_of(operations, readers, i)


def shared_line(operation: Operation, others: list[Operation]) -> SourceLine | None:
    """Return the operation's line in the innermost function call that it shares with the others."""
    for frame, line in zip(operation.frames, operation.lines):
        if others and all(frame in other.frames for other in others):
            return line
    return None


@dataclass(frozen=True)
class Leaf:
    """A tensor that a model or its caller provides."""

    kind: str
    label: str
    tensor: torch.Tensor

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """Return the fingerprint. It is computed when it is first needed and then kept, because an
        embedding table is large."""
        return fingerprint(self.tensor)


@cache
def own_folders() -> tuple[str, ...]:
    """Return the folders whose lines are not the user's: torch, and the doctor itself."""
    doctor = Path(__file__).parent.parent
    torch_folder = Path(torch.__file__).parent
    return (f"{torch_folder}/", f"{doctor}/")
