"""Finds the input files of a recipe, and reads them as one stream of documents."""

import os
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from clearhead.config.checks import user_path
from clearhead.config.data import SPLITS, DataConfig
from clearhead.environment import data_folder
from clearhead.errors import ClearheadError, DataError, call
from clearhead.intake.equality import lines_of
from clearhead.intake.formats import Document, count_lines, read_documents
from clearhead.intake.invalid_input import Place, Sieve
from clearhead.intake.missing import other_endings
from clearhead.intake.public import public_corpora
from clearhead.intake.unpack import COMPRESSIONS, Input, OpenedFile, open_bytes

SUFFIXES = {
    "text": (".txt", ".text"),
    "tsv": (".tsv",),
    "csv": (".csv",),
    "tmx": (".tmx",),
    "jsonl": (".jsonl", ".ndjson", ".json"),
    "json": (".json",),
    "parquet": (".parquet",),
}


GET = "get it with: "


class Cursor(NamedTuple):
    """The progress of reading: which input, and how many of its documents."""

    input: int = 0
    documents: int = 0


def data_root(config: DataConfig) -> Path:
    """Return the folder from which the paths of a recipe start: CLEARHEAD_DATA, unless all paths
    are absolute. A tokenizer and a glossary may also be in the current folder."""
    paths = [*config.train, *config.valid, *config.test]
    if not all(user_path(path).is_absolute() for path in paths):
        return data_folder()
    try:
        return data_folder()
    except ClearheadError:
        return Path()


def located(config: DataConfig, root: Path | None = None) -> DataConfig:
    """Return the settings with all paths below `root`, or else below `data_root`. Code that finds
    and reads files takes these; code that records settings keeps the recipe's own."""
    start = data_root(config) if root is None else root
    paths: dict[str, Any] = {
        split: tuple(str(start / user_path(path)) for path in getattr(config, split))
        for split in SPLITS
    }
    for field in ("tokenizer_file", "glossary"):
        if (name := getattr(config, field)) is not None:
            path = user_path(name)
            paths[field] = str(start / path if (start / path).exists() else path)
    return replace(config, **paths)


def find_inputs(config: DataConfig, split: str) -> list[Input]:
    """Find the files of a split, in an order that does not depend on the file system."""
    patterns = config.paths(split)
    if config.format == "parallel":
        sides = [_expand(pattern, split, "text") for pattern in patterns]
        if sides and len(sides[0]) != len(sides[1]):
            raise DataError(
                f"data.{split}: {patterns[0]} matches {len(sides[0])} file(s) and {patterns[1]} "
                f"matches {len(sides[1])}; each source file needs a target file"
            )
        return [Input(pair) for pair in zip(*sides)]
    if config.format == "labelled":
        return [
            Input((path,), label)
            for label, pattern in zip(config.labels, patterns)
            for path in _expand(pattern, split, "text")
        ]
    paths = [path for pattern in patterns for path in _expand(pattern, split, config.format)]
    return [Input((path,)) for path in paths]


def _expand(pattern: str, split: str, kind: str) -> list[Path]:
    path = Path(pattern)
    if path.is_file():
        return [path]
    remedy = _remedy(path)
    if path.is_dir():
        suffixes = tuple(s + c for s in SUFFIXES[kind] for c in COMPRESSIONS)
        files = list(_files_below(path))
        matches = [p for p in files if p.name.lower().endswith(suffixes)]
        missing = f"holds no file that ends in {', '.join(suffixes)}"
        if files and not remedy.startswith(GET):
            remedy = other_endings(path, [str(file.relative_to(path)) for file in files])
    else:
        anchor = Path(path.anchor)
        matches = [p for p in anchor.glob(str(path.relative_to(anchor))) if p.is_file()]
        missing = "matches no file"
    if not matches:
        raise DataError(f"data.{split}: {path} {missing}; {remedy}")
    return sorted(matches)


def _files_below(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, except hidden files, and runs and prepared data of
    clearhead."""
    for folder_path, folders, files in os.walk(folder):
        below = Path(folder_path)
        prepared = "manifest.json" in files and any(n.startswith("tokenizer") for n in files)
        if below != folder and (prepared or {"recipe.toml", "log.txt"} <= {*files}):
            folders.clear()
            continue
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            if not name.startswith(".") and (below / name).is_file():
                yield below / name


def _remedy(path: Path) -> str:
    try:
        root = data_folder()
    except ClearheadError:
        return "check the path"
    for name, corpus in public_corpora().items():
        if path.is_relative_to(root / corpus.folder):
            return f"{GET}{call('get_corpus', name)}"
    if not path.is_relative_to(root):
        return "check the path"
    return (
        "check the name, and that CLEARHEAD_DATA is the folder that the recipe's paths start from"
    )


class Reader:
    """Reads the documents of a split. After each document, `cursor`, `sieve.counts` and `consumed`
    say how far reading has progressed; the first two are enough to resume in a new process."""

    def __init__(
        self,
        inputs: list[Input],
        config: DataConfig,
        split: str,
        *,
        whole: Sequence[Input] | None = None,
        removed: Mapping[Place, str] | None = None,
    ) -> None:
        """`whole` are all inputs from which splits are held out, if these inputs are only some of
        them. `removed` are documents to leave out, with the kinds of their defects."""
        self.inputs, self.config, self.split = inputs, config, split
        self.whole = inputs if whole is None else whole
        self.removed = removed or {}
        self.sieve = Sieve(config)
        self.cursor = Cursor()
        self._finished = 0
        self._open: list[OpenedFile] = []

    @property
    def consumed(self) -> int:
        """The number of bytes taken from the disk so far, packed as they are there."""
        return self._finished + sum(opened.position() for opened in self._open)

    def documents(self, start: Cursor, counts: dict[str, int]) -> Iterator[Document]:
        """Yield the documents from a cursor on, with the counts that belong to it."""
        self.cursor = start
        self.sieve.counts.update(counts)
        self._finished = sum(input_files.size for input_files in self.inputs[: start.input])
        for number, input_files in enumerate(self.inputs[start.input :], start.input):
            skip = start.documents if number == start.input else 0
            with ExitStack() as stack:
                self._open = [open_bytes(path, stack) for path in input_files.paths]
                self.sieve.lines = self._lines(input_files)
                documents = read_documents(self._open, self.split, self.sieve)
                for read, document in enumerate(documents, 1):
                    if read < skip:
                        continue
                    if read == skip:  # `counts` already includes what was rejected up to here
                        self.sieve.counts.clear()
                        self.sieve.counts.update(counts)
                        continue
                    self.cursor = Cursor(number, read)
                    if document.place in self.removed:
                        self.sieve.counts[self.removed[document.place]] += 1
                        continue
                    label = () if input_files.label is None else (input_files.label,)
                    yield Document(document.texts + label, document.place)
                self._open = []
            self._finished += input_files.size

    def _lines(self, input_files: Input) -> Container[int] | None:
        """Return the numbers of the lines or rows that belong to the split; None: all. If a file is
        divided among splits, its lines have to be counted or compared first."""
        config = self.config
        if config.document == "file" or not config.held_out_splits:
            return None
        if self.split not in ("train", *config.held_out_splits):
            return None
        if config.hold_out == "groups":
            return lines_of(self.split, self.whole, config)[self.whole.index(input_files)]
        with ExitStack() as stack:
            opened = [open_bytes(path, stack) for path in input_files.paths]
            n = max(count_lines(file, config) for file in opened)
        share = config.share(self.split, n)
        return range(share.start + 1, share.stop + 1)
