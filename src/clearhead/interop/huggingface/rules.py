"""Rules that relate tensors of clearhead to one tensor of Hugging Face, which is renamed, fused,
transposed or reshaped on the way. Each rule is written once and read in both directions, so that
export and import cannot drift apart."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from clearhead.errors import FolderError
from clearhead.interop.model_folder import check_tensors
from clearhead.interop.tensor_files import Piece, TensorFiles, listed

Shapes = Mapping[str, tuple[int, ...]]
Read = Callable[[str], Tensor]
TensorLayout = Literal["same", "transposed", "row"]
TensorUse = Literal["same", "alias", "spare"]


class Rule(NamedTuple):
    """Says that these tensors of clearhead and one tensor of Hugging Face hold the same numbers."""

    ours: tuple[str, ...]
    """The tensors of clearhead. If there are several, they are of equal size, and fused along the
    first axis in the tensor of Hugging Face. None: see `computed`."""
    theirs: str
    layout: TensorLayout = "same"
    """transposed: Hugging Face stores matrices as input × output. row: Hugging Face stores a vector
    as a matrix of one row."""
    kind: TensorUse = "same"
    """alias: a second name that a file may contain; it is never written and, if present, must
    agree. spare: a tensor that transformers requires and never uses; it is written, and not
    read."""
    computed: Callable[[], Tensor] | None = None
    """Computes a tensor that follows from the configuration and that clearhead does not store."""

    def to_hugging_face(self, ours: list[Tensor]) -> Tensor:
        """Make Hugging Face's tensor from clearhead's."""
        if self.computed is not None:
            return self.computed()
        tensor = torch.cat(ours) if len(ours) > 1 else ours[0]
        match self.layout:
            case "same":
                return tensor
            case "transposed":
                return tensor.t()
            case "row":
                return tensor[None]

    def from_hugging_face(self, theirs: Tensor) -> list[Tensor]:
        """Make clearhead's tensors from the tensor of Hugging Face."""
        match self.layout:
            case "same":
                tensor = theirs
            case "transposed":
                tensor = theirs.t()
            case "row":
                tensor = theirs[0]
        return list(tensor.chunk(len(self.ours))) if len(self.ours) > 1 else [tensor]

    def their_shape(self, ours: Shapes) -> tuple[int, ...]:
        """Return the shape of the Hugging Face tensor, from the shapes of clearhead's."""
        with torch.device("meta"):
            return tuple(
                self.to_hugging_face([torch.empty(ours[name]) for name in self.ours]).shape
            )


def module(
    ours: str | tuple[str, ...], theirs: str, layout: TensorLayout = "same"
) -> Iterator[Rule]:
    """Return rules for the weights and biases of linear layers (several of clearhead's are fused)
    or of a norm."""
    names = (ours,) if isinstance(ours, str) else ours
    for kind in ("weight", "bias"):
        yield Rule(tuple(f"{name}.{kind}" for name in names), f"{theirs}.{kind}", layout)


def to_theirs(rules: Iterable[Rule], shapes: Shapes, read: Read) -> list[Piece]:
    """Return the tensors that an export writes. `shapes` and `read` describe clearhead's
    tensors."""
    rules = [rule for rule in rules if rule.kind != "alias"]
    covered = {name for rule in rules for name in rule.ours}
    if uncovered := sorted(shapes.keys() - covered):
        raise FolderError(f"no rule covers our tensors {listed(uncovered)}; please report it")

    def make(rule: Rule) -> list[Tensor]:
        return [rule.to_hugging_face([read(name) for name in rule.ours])]

    return [
        Piece({rule.theirs: rule.their_shape(shapes)}, lambda rule=rule: make(rule))
        for rule in rules
    ]


@dataclass(frozen=True)
class Spelling:
    """The names that the same tensors have in old files."""

    prefix: str
    """The prefix of the tower's names, if a file was saved without its head."""
    left_out: tuple[str, ...] = ()
    """Regular expressions of tensors that carry nothing: stored masks, heads for other tasks."""

    def canonical(self, found: Iterable[str], their_names: set[str]) -> dict[str, str]:
        """Return the name in the file for each known name."""
        names: dict[str, str] = {}
        for name in found:
            plain = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))
            full = next((n for n in (name, plain, self.prefix + plain) if n in their_names), name)
            if full not in their_names and any(re.fullmatch(p, full) for p in self.left_out):
                continue
            if full in names:
                raise FolderError(f"{name!r} and {names[full]!r} are the same tensor; keep one")
            names[full] = name
        return names


class HuggingFaceTensors:
    """The tensors of an untrusted folder under clearhead's names. Before any tensor is read, it is
    checked that a rule covers every tensor of the folder, that every rule's tensor exists, and that
    all shapes agree."""

    def __init__(
        self, files: TensorFiles, rules: Iterable[Rule], shapes: Shapes, spelling: Spelling
    ) -> None:
        """`shapes` are those of clearhead's tensors."""
        rules = list(rules)
        self._files = files
        self._names = spelling.canonical(files.shapes, their_names={rule.theirs for rule in rules})
        shapes_in_files = {name: files.shapes[in_file] for name, in_file in self._names.items()}
        rules = [rule for rule in rules if rule.kind == "same" or rule.theirs in shapes_in_files]
        check_tensors(
            files.folder, shapes_in_files, {rule.theirs: rule.their_shape(shapes) for rule in rules}
        )
        self._rules = [rule for rule in rules if rule.kind == "same"]
        self._homes = {name: rule for rule in self._rules for name in rule.ours}
        self.dtype = files.dtype(self._names[rule.theirs] for rule in self._rules)
        for rule in rules:
            if rule.kind == "alias":
                self._check_alias(rule)

    def read_ours(self, name: str) -> Tensor:
        """Read one tensor of clearhead from the folder now."""
        rule = self._homes[name]
        return self._back(rule)[rule.ours.index(name)]

    def pieces(self, shapes: Shapes) -> list[Piece]:
        """Return the tensors that an import writes, by these names of clearhead."""
        return [
            Piece({name: shapes[name] for name in rule.ours}, lambda rule=rule: self._back(rule))
            for rule in self._rules
            if shapes.keys() >= set(rule.ours)
        ]

    def _read(self, rule: Rule) -> Tensor:
        return self._files.read(self._names[rule.theirs])

    def _back(self, rule: Rule) -> list[Tensor]:
        return rule.from_hugging_face(self._read(rule))

    def _check_alias(self, rule: Rule) -> None:
        stored = self._read(rule)
        agreed = rule.to_hugging_face([self.read_ours(name) for name in rule.ours])
        agreed = agreed.to(stored.dtype)
        # A formula that another machine has computed may differ by rounding.
        near = not rule.ours and torch.allclose(stored, agreed, rtol=0.0, atol=1e-6)
        if not near and not torch.equal(stored, agreed):
            other = repr(self._homes[rule.ours[0]].theirs) if rule.ours else "the formula"
            raise FolderError(
                f"{rule.theirs!r} in {self._files.folder} differs from {other}, though its "
                "config.json makes them one; correct one of them"
            )
