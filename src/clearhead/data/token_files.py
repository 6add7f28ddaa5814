"""Token files: flat unsigned tokens (`.ds`) beside the 64-bit ends of the documents, counted in
tokens (`.ds.index`). Each file is little-endian and has no header: the layout that datatrove
writes."""

import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearhead.errors import DataError, function
from clearhead.files import NewFile

TokenArray = NDArray[np.unsignedinteger]
Integers = NDArray[np.int64]
INDEX = ".index"


def token_dtype(vocab_size: int) -> np.dtype[np.unsignedinteger]:
    """Return the smallest type that holds every id: two or four bytes per token."""
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")


class FileFacts(NamedTuple):
    """What the manifest records about one token file."""

    name: str
    token_bytes: int
    tokens: int
    documents: int
    sha256: str
    index_sha256: str


class TokenFileWriter:
    """Writes a token file under a temporary name. The file gets its final name only when every byte
    is on the disk."""

    def __init__(self, folder: Path, name: str, dtype: np.dtype[np.unsignedinteger]) -> None:
        self.folder, self.name, self.dtype = folder, name, dtype
        self.tokens = self.documents = 0
        self._files = {suffix: NewFile(folder / (name + suffix)) for suffix in ("", INDEX)}
        self._hashes = {suffix: hashlib.sha256() for suffix in self._files}

    def add(self, tokens: TokenArray, lengths: Integers) -> None:
        """Add several documents: all their tokens in a row, and the number of tokens in each."""
        self._write("", tokens.astype(self.dtype, copy=False))
        self._write(INDEX, (self.tokens + np.cumsum(lengths)).astype("<u8"))
        self.tokens += len(tokens)
        self.documents += len(lengths)

    def _write(self, suffix: str, values: NDArray[np.integer]) -> None:
        self._files[suffix].write(values.tobytes())
        self._hashes[suffix].update(values.tobytes())

    def finish(self) -> FileFacts:
        """Sync the file to the disk, give it its final name, and return its facts."""
        for file in self._files.values():
            file.finish()
        return FileFacts(
            name=self.name,
            token_bytes=self.dtype.itemsize,
            tokens=self.tokens,
            documents=self.documents,
            sha256=self._hashes[""].hexdigest(),
            index_sha256=self._hashes[INDEX].hexdigest(),
        )


class TokenFile:
    """One token file, mapped into memory when it is first read. A copy in another process maps the
    file again: pickling a mapping would send gigabytes."""

    def __init__(self, folder: Path, facts: FileFacts) -> None:
        self.path, self.facts = folder / facts.name, facts
        self._maps: tuple[TokenArray, NDArray[np.uint64]] | None = None

    def __getstate__(self) -> dict[str, object]:
        return {"path": self.path, "facts": self.facts, "_maps": None}

    @property
    def tokens(self) -> TokenArray:
        """All tokens of the file, as a memory-mapped array."""
        return self._mapped()[0]

    @property
    def ends(self) -> NDArray[np.uint64]:
        """The number of tokens up to and including each document."""
        return self._mapped()[1]

    def _mapped(self) -> tuple[TokenArray, NDArray[np.uint64]]:
        if self._maps is None:
            dtype = np.dtype(f"<u{self.facts.token_bytes}")
            tokens = _map(self.path, dtype, self.facts.tokens)
            ends = _map(Path(f"{self.path}{INDEX}"), np.dtype("<u8"), self.facts.documents)
            self._maps = tokens, ends
        return self._maps


def _map(path: Path, dtype: np.dtype, expected: int) -> NDArray:
    size = path.stat().st_size if path.is_file() else -1
    if size != expected * dtype.itemsize:
        state = "is missing" if size < 0 else f"has {size} bytes"
        raise DataError(
            f"{path} {state} where {expected * dtype.itemsize} are expected; "
            f"prepare again: {function('prepare', 'overwrite')}"
        )
    if not expected:  # an empty file cannot be mapped
        return np.empty(0, dtype)
    # Converted to a plain array, because slices of a memmap take ten times as long to make.
    return np.memmap(path, dtype=dtype, mode="r").view(np.ndarray)


def check_tokens(folder: Path, facts: FileFacts, vocab_size: int, longest: int) -> None:
    """Raises unless the file holds one document after the other, none longer than the manifest
    says, and only tokens of the tokenizer. The file's hash shows that it is unchanged, but not that
    it was correct."""
    file = TokenFile(folder, facts)
    lengths = np.diff(file.ends.astype(np.int64), prepend=0)
    if lengths.sum() != facts.tokens or lengths.min(initial=0) < 0:
        problem = "its index does not divide it into documents"
    elif lengths.max(initial=0) > longest:
        problem = f"it holds a document of {lengths.max()} tokens where {longest} are the most"
    elif file.tokens.max(initial=0) >= max(1, vocab_size):
        problem = f"it holds the token {file.tokens.max()} of a vocabulary of {vocab_size}"
    else:
        return
    raise DataError(f"{file.path}: {problem}; prepare again: {function('prepare', 'overwrite')}")


class TokenStore:
    """Many token files as one long row of tokens and one long list of documents."""

    def __init__(self, files: Sequence[TokenFile]) -> None:
        self.files = files
        self._first_token = [0, *np.cumsum([f.facts.tokens for f in files]).tolist()]
        self._first_document = [0, *np.cumsum([f.facts.documents for f in files]).tolist()]

    @property
    def n_tokens(self) -> int:
        """The number of tokens in all files together."""
        return self._first_token[-1]

    @property
    def n_documents(self) -> int:
        """The number of documents in all files together."""
        return self._first_document[-1]

    def read(self, start: int, stop: int) -> Integers:
        """Read tokens start…stop-1 of the row, whichever files hold them."""
        pieces: list[Integers] = []
        while start < stop:
            file = bisect_right(self._first_token, start) - 1
            base, end = self._first_token[file], min(stop, self._first_token[file + 1])
            pieces.append(self.files[file].tokens[start - base : end - base].astype(np.int64))
            start = end
        return np.concatenate(pieces) if len(pieces) != 1 else pieces[0]

    def document(self, number: int, start: int = 0, stop: int | None = None) -> Integers:
        """Read a document, or its tokens start…stop-1."""
        file = bisect_right(self._first_document, number) - 1
        first, end = self._bounds(file, np.array([number - self._first_document[file]]))
        stop = int(end[0]) if stop is None else int(first[0]) + stop
        return self.files[file].tokens[int(first[0]) + start : stop].astype(np.int64)

    def documents(self, numbers: Integers) -> list[TokenArray]:
        """Read several documents, straight from the mapped files."""
        arrays: list[TokenArray] = [np.empty(0, np.uint16)] * len(numbers)
        for file, indices, starts, stops in self._by_file(numbers):
            tokens = self.files[file].tokens
            for index, start, stop in zip(indices.tolist(), starts.tolist(), stops.tolist()):
                arrays[index] = tokens[start:stop]
        return arrays

    def lengths(self, numbers: Integers) -> Integers:
        """Return how many tokens each document has, without reading the tokens."""
        counts = np.empty(len(numbers), np.int64)
        for _, indices, starts, stops in self._by_file(numbers):
            counts[indices] = stops - starts
        return counts

    def _by_file(self, numbers: Integers) -> Iterator[tuple[int, Integers, Integers, Integers]]:
        """Yield the documents of each file in turn: their places in `numbers`, and where they start
        and stop in the file."""
        file_of = np.searchsorted(self._first_document, numbers, side="right") - 1
        order = np.argsort(file_of, kind="stable")
        for indices in np.split(order, np.flatnonzero(np.diff(file_of[order])) + 1):
            if len(indices):
                file = int(file_of[indices[0]])
                local = numbers[indices] - self._first_document[file]
                yield file, indices, *self._bounds(file, local)

    def document_of(self, start: int, stop: int) -> Integers:
        """Return for each token of start…stop-1 the number of its document, counted from 0 in the
        slice."""
        ends: list[Integers] = []
        position = start
        while position < stop:
            file = bisect_right(self._first_token, position) - 1
            base, end = self._first_token[file], min(stop, self._first_token[file + 1])
            index = self.files[file].ends
            # If the numbers had another type, numpy would convert the whole index.
            borders = np.array([position - base, end - base], index.dtype)
            first, last = np.searchsorted(index, borders, side="right")
            ends.append(index[first:last].astype(np.int64) + base)
            position = end
        return np.searchsorted(np.concatenate(ends), np.arange(start, stop), side="right")

    def _bounds(self, file: int, local: Integers) -> tuple[Integers, Integers]:
        ends = self.files[file].ends
        start = np.where(local > 0, ends[np.maximum(local - 1, 0)], np.uint64(0))
        return start.astype(np.int64), ends[local].astype(np.int64)
