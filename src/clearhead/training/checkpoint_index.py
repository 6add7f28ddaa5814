"""Reads the index of a checkpoint as if somebody else had written it.

torch stores the index (`.metadata`) as a pickle, and loading a pickle can call anything. Here, each
name in the pickle stands for a class that is made on the spot and only holds the values that it is
given; a name that no index needs is refused. The index for torch is built from these records: it
has only tensors, each in a file that the manifest lists. torch's `weights_only` reader reads the
tensors.
"""

import pickle
from collections.abc import Iterable, Mapping
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    STORAGE_TYPES,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import ReadItem

from clearhead.errors import ClearheadError, setting, type_of

INDEX = ".metadata"
_METADATA = "torch.distributed.checkpoint.metadata"
NAMES = {
    (_METADATA, "Metadata"),
    (_METADATA, "MetadataIndex"),
    (_METADATA, "StorageMeta"),
    (_METADATA, "TensorStorageMetadata"),
    (_METADATA, "ChunkStorageMetadata"),
    (_METADATA, "TensorProperties"),
    (_METADATA, "_MEM_FORMAT_ENCODING"),
    ("builtins", "getattr"),  # Python 3.11.0 to 3.11.3 write a member of an enum so
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch.serialization", "_get_layout"),
    ("torch", "Size"),
    ("pathlib", "PosixPath"),
    ("pathlib", "WindowsPath"),
    ("pathlib._local", "PosixPath"),
    ("pathlib._local", "WindowsPath"),
}
"""The names in the indexes that torch writes, besides the names of dtypes. Each becomes a record;
none is called."""


class CheckpointError(ClearheadError):
    """Raised if a checkpoint could not be written, or if none can be read."""


class TensorReader(dcp.FileSystemReader):
    """torch's reader for the files of a checkpoint whose index has been read."""

    def __init__(self, folder: Path, index: Metadata) -> None:
        super().__init__(folder)
        self.index = index

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        """Return the index that was checked, instead of the one in the file."""
        return replace(self.index, storage_meta=StorageMeta(load_id=self.load_id))


class TensorPlanner(DefaultLoadPlanner):
    """torch's planner, which would unpickle everything that is not a tensor. `read_index` lets
    nothing else pass; this class is a second barrier."""

    def load_bytes(self, read_item: ReadItem, value: BytesIO) -> None:  # noqa: ARG002
        """Always raises, because a checkpoint holds only tensors."""
        raise CheckpointError(f"{read_item.dest_index.fqn} in a checkpoint is not a tensor")


def read_index(folder: Path, files: Iterable[str]) -> Metadata:
    """Read the index of a checkpoint that has these files."""
    sizes = {name: (folder / name).stat().st_size for name in files}
    try:
        return _index(_Records(BytesIO((folder / INDEX).read_bytes())), sizes)
    except Exception as error:  # bytes that are no pickle can raise anything
        raise CheckpointError(
            f"{folder / INDEX} is not the index of a checkpoint ({error}); nothing in it was "
            f"executed. Start a new run in another folder ({setting('folder', ...)}); if "
            "somebody sent you this "
            "run, ask for its model folder instead"
        ) from None


def _index(read: "_Records", sizes: Mapping[str, int]) -> Metadata:
    """Build the index. Raises ValueError, or whatever a damaged pickle raises."""
    whole = read.fields(read.load(), "Metadata")
    tensors: dict[str, STORAGE_TYPES] = {
        _of(str, name): _tensor(read, tensor)
        for name, tensor in _of(dict, whole["state_dict_metadata"]).items()
    }
    places = dict(
        _place(read, key, place, sizes) for key, place in _of(dict, whole["storage_data"]).items()
    )
    return Metadata(state_dict_metadata=tensors, storage_data=places)


def _place(
    read: "_Records", key: Any, place: Any, sizes: Mapping[str, int]
) -> tuple[MetadataIndex, _StorageInfo]:
    """Return the place of a piece of a tensor: a file of the manifest, and the position inside
    it."""
    index, info = read.fields(key, "MetadataIndex"), read.fields(place, "_StorageInfo")
    name, start, length = info["relative_path"], info["offset"], info["length"]
    if _of(str, name) not in sizes or info.get("transform_descriptors"):
        raise ValueError(f"the file {name!r} is not in the manifest")
    if not 0 <= _of(int, start) <= start + _of(int, length) <= sizes[name]:
        raise ValueError(f"{name!r} has no bytes {start} to {start + length}")
    offset, hint = index.get("offset"), index.get("index")
    piece = MetadataIndex(
        _of(str, index["fqn"]),
        None if offset is None else read.size(offset),
        None if hint is None else _of(int, hint),
    )
    return piece, _StorageInfo(name, start, length)


def _tensor(read: "_Records", tensor: Any) -> TensorStorageMetadata:
    """Return a tensor of the index. An item of bytes, which torch would unpickle, is a record of
    another name."""
    fields = read.fields(tensor, "TensorStorageMetadata")
    properties = read.state(fields["properties"], "TensorProperties")
    chunks = [read.fields(chunk, "ChunkStorageMetadata") for chunk in _of(list, fields["chunks"])]
    return TensorStorageMetadata(
        # The other properties are deprecated and are not read.
        properties=TensorProperties(dtype=_of(torch.dtype, _of(tuple, properties)[0])),
        size=read.size(fields["size"]),
        chunks=[
            ChunkStorageMetadata(read.size(chunk["offsets"]), read.size(chunk["sizes"]))
            for chunk in chunks
        ],
    )


class _Record:
    """Holds what a pickle says about an object. Subclasses are made for one pickle and thrown away
    with it, because a pickle can also change the classes that it names."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Records(pickle.Unpickler):
    """Turns a pickle into records, dtypes and Python's own plain values."""

    def __init__(self, file: BytesIO) -> None:
        super().__init__(file)
        self.kinds: dict[str, type[_Record]] = {}

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and isinstance(dtype := vars(torch).get(name), torch.dtype):
            return dtype
        if (module, name) not in NAMES:
            raise ValueError(f"it asks for {module}.{name}")
        return self.kinds.setdefault(name, type(name, (_Record,), {}))

    def state(self, value: Any, name: str) -> Any:
        if type(value) is not self.kinds.get(name):
            raise ValueError(f"{name} is expected, but this is {type_of(value)}")
        return vars(value)["state"]

    def fields(self, value: Any, name: str) -> dict[str, Any]:
        return _of(dict, self.state(value, name))

    def size(self, value: Any) -> torch.Size:
        if type(value) is not self.kinds.get("Size"):
            raise ValueError(f"a torch.Size is expected, but this is {type_of(value)}")
        (lengths,) = vars(value)["arguments"]
        if any(_of(int, length) < 0 for length in _of(tuple, lengths)):
            raise ValueError(f"{lengths} is not a shape")
        return torch.Size(lengths)


def _of(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{kind.__name__} is expected, but this is {type_of(value)}")
    return value
