"""Reads and writes named tensors in safetensors files: one file, or several with an index. The
layout is that of Hugging Face.

Reading trusts nothing: the headers are checked before any tensor is read, and each tensor is read
only when the caller asks for it. Writing makes one shard at a time, so that a model of any size
only needs the memory of its largest shard.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from clearhead.errors import FolderError
from clearhead.interop.folders import (
    MAX_JSON_BYTES,
    has_file,
    read_json,
    regular_file,
    write_json,
)

WHOLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
MAX_SHARD_BYTES = 2 * 2**30
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}
"""The dtypes of weights. Integers and 8-bit floats would be quantised weights, which mean nothing
without their scales."""


class TensorFiles:
    """The tensors of a folder, by name. Open it with `with`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._dtypes: dict[str, str] = {}
        self._files: dict[str, Any] = {}
        self._homes: dict[str, str] = {}
        self._exit = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as exit_on_error:
            index = _shard_index(self.folder)
            for file in sorted(set(index.values())) if index else [WHOLE]:
                self._open(file, exit_on_error)
            if index:
                self._check_index(index)
            self._exit = exit_on_error.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def read(self, name: str) -> Tensor:
        """Read one tensor from its file now. All its numbers must be finite."""
        tensor = self._files[name].get_tensor(name)
        if tensor.numel() and tensor.is_floating_point():
            least, greatest = tensor.aminmax()  # NaN passes through both
            if not math.isfinite(least.item()) or not math.isfinite(greatest.item()):
                raise FolderError(
                    f"{name!r} in {self.folder} holds NaN or infinite numbers, so the model's "
                    "output would mean nothing; is the file damaged, or did its training "
                    "diverge? Use an earlier checkpoint"
                )
        return tensor

    def dtype(self, names: Iterable[str]) -> torch.dtype:
        """Return the one dtype of these tensors."""
        dtypes = {self._dtypes[name] for name in names}
        if len(dtypes) != 1 or not dtypes <= DTYPES.keys():
            raise FolderError(
                f"the weights in {self.folder} are {', '.join(sorted(dtypes)) or 'missing'}; "
                f"a model has weights of one kind, and clearhead reads {', '.join(DTYPES)}"
            )
        return DTYPES[dtypes.pop()]

    def _open(self, file: str, stack: ExitStack) -> None:
        path = regular_file(self.folder, file)
        try:
            # Not mapped into memory: pages of a mapped file count as the process's own.
            opened = stack.enter_context(safe_open(path, framework="pt", backend="pread"))
            for name in opened.keys():  # noqa: SIM118 (not a dict)
                if name in self._files:
                    raise FolderError(f"{self.folder} holds {name!r} twice; keep one of them")
                header = opened.get_slice(name)
                self._files[name], self._homes[name] = opened, file
                self.shapes[name] = tuple(header.get_shape())
                self._dtypes[name] = header.get_dtype()
        except (SafetensorError, OSError) as error:
            raise FolderError(
                f"{path} is not a safetensors file ({error}); is it damaged?"
            ) from None

    def _check_index(self, index: dict[str, str]) -> None:
        homes = self._homes
        if odd := sorted(n for n in index | homes if index.get(n) != homes.get(n)):
            raise FolderError(f"{self.folder / INDEX} and its shards differ in {listed(odd)}")


def _shard_index(folder: Path) -> dict[str, str]:
    """Return the file of each tensor; empty if one file holds all tensors."""
    if has_file(folder, WHOLE):
        return {}
    if not has_file(folder, INDEX):
        pickled = any(folder.glob("*.bin")) or any(folder.glob("*.pt*"))
        remedy = f"its weights are pickled, {_to_convert(folder)}"
        remedy = remedy if pickled else "is it a model folder?"
        raise FolderError(f"{folder} has no {WHOLE}; {remedy}")
    index = read_json(folder, INDEX, most=MAX_JSON_BYTES).get("weight_map")
    if not isinstance(index, dict) or not index:
        raise FolderError(
            f"{folder / INDEX} has no 'weight_map' from tensors to files; is it damaged?"
        )
    for name, file in index.items():
        if not isinstance(file, str) or not file.endswith(".safetensors"):
            rule = "a shard is a .safetensors file in the same folder"
            raise FolderError(f"{folder / INDEX} sends {name!r} to {file!r}; {rule}")
    return index


def _to_convert(folder: Path) -> str:
    """Say how to write pickled weights as safetensors."""
    try:
        architectures = read_json(folder, "config.json").get("architectures")
    except FolderError:
        architectures = None
    name = architectures[0] if isinstance(architectures, list) and architectures else None
    known = isinstance(name, str) and name.isidentifier() and name.isascii()
    kind = name if known else "AutoModel"
    return (
        "and a pickle can run any code: ask for safetensors, or, if you trust the file, write them "
        f"with transformers: from transformers import {kind}; "
        f"{kind}.from_pretrained({str(folder)!r}).save_pretrained({str(folder)!r})"
    )


class Piece(NamedTuple):
    """Tensors that are computed together when their shard is written."""

    shapes: dict[str, Sequence[int]]
    make: Callable[[], Sequence[Tensor]]


def write_tensors(
    folder: Path,
    pieces: Iterable[Piece],
    *,
    dtype: torch.dtype,
    max_shard_bytes: int = MAX_SHARD_BYTES,
) -> None:
    """Write one file, or shards of at most `max_shard_bytes` (or of one piece) and an index."""
    shards: list[list[Piece]] = [[]]
    filled = total = 0
    for piece in pieces:
        n_bytes = sum(_n_bytes(shape, dtype) for shape in piece.shapes.values())
        if shards[-1] and filled + n_bytes > max_shard_bytes:
            shards.append([])
            filled = 0
        shards[-1].append(piece)
        filled, total = filled + n_bytes, total + n_bytes
    index: dict[str, str] = {}
    for number, shard in enumerate(shards, start=1):
        whole = len(shards) == 1
        file = WHOLE if whole else f"model-{number:05}-of-{len(shards):05}.safetensors"
        index |= dict.fromkeys((name for piece in shard for name in piece.shapes), file)
        _write_shard(folder / file, shard, dtype)
    if len(shards) > 1:
        metadata = {"total_size": total}
        write_json(folder, INDEX, {"metadata": metadata, "weight_map": dict(sorted(index.items()))})


def _write_shard(path: Path, shard: list[Piece], dtype: torch.dtype) -> None:
    tensors: dict[str, Tensor] = {}
    for piece in shard:
        for (name, shape), tensor in zip(piece.shapes.items(), piece.make(), strict=True):
            assert tensor.shape == torch.Size(shape), f"{name} became {tuple(tensor.shape)}"
            tensors[name] = tensor.to(dtype).contiguous()
    try:
        save_file(tensors, path, metadata={"format": "pt"})
    except SafetensorError as error:
        raise FolderError(
            f"{path} could not be written ({error}); free some space and run again"
        ) from None


def _n_bytes(shape: Sequence[int], dtype: torch.dtype) -> int:
    return torch.Size(shape).numel() * dtype.itemsize


def listed(names: Sequence[str], most: int = 5) -> str:
    """Return the first few names, for an error."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more
