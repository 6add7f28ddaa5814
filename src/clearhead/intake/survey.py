"""Counts text in one pass, and writes a sample of it."""

import json
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from clearhead.config.data import DataConfig
from clearhead.errors import DataError, setting, with_marks
from clearhead.files import sha256_of
from clearhead.intake.formats import count_lines
from clearhead.intake.invalid_input import why_nothing
from clearhead.intake.missing import no_such_file
from clearhead.intake.out_of_step import MOST_LINES, REMEDY, describe_departure
from clearhead.intake.sources import Cursor, Reader, find_inputs
from clearhead.intake.unpack import Input, open_bytes

LONGEST_HEAD = 100_000
"""Bytes of the longest text that are kept."""


@dataclass(frozen=True, kw_only=True)
class Survey:
    """The amount of text, and a sample of the text."""

    documents: int
    """Pairs or texts, blank ones left out."""
    n_bytes: int
    """The bytes of all sides together."""
    longest: int
    """Bytes of the longest side of a document."""
    longest_text: str
    """The text of that side, or its beginning."""
    sample: DataConfig
    """The settings for the sample, which is the whole text if there is little."""
    sample_bytes: int
    skipped: dict[str, int]
    """Invalid input, by kind."""

    @property
    def left_out(self) -> str:
        """Describe what was skipped in a sentence; empty if nothing was."""
        counts = ", ".join(f"{count:,} {kind}" for kind, count in self.skipped.items())
        return f" Skipped: {counts}." if counts else ""


def check_files(config: DataConfig) -> None:
    """Check that the training files, whose paths are absolute, exist and are not empty, and that
    the files of pairs are parallel line by line. A folder stands for its files, as in any
    recipe."""
    for path in map(Path, config.train):
        if not (path.is_file() or path.is_dir()):
            raise no_such_file(path)
    for input_files in _find_inputs(config):
        counts: list[int] = []
        for path in input_files.paths:
            with ExitStack() as stack:
                counts.append(count_lines(open_bytes(path, stack), config))
            if not counts[-1]:
                raise DataError(f"{path} is empty; name a file with text in it")
        if config.format != "parallel":
            continue
        source, target = input_files.paths
        if _same_bytes(source, target):
            raise DataError(
                f"{source} and {target} hold the same text; give a source and its translation"
            )
        if len(set(counts)) > 1:
            raise DataError(
                f"{source} has {counts[0]:,} lines and {target} {counts[1]:,}, and line n of one "
                f"must belong to line n of the other; {_departure(source, target, counts)}"
            )


def _find_inputs(config: DataConfig) -> list[Input]:
    """Find the training files. There is no recipe yet, so an error names no key of it; of two
    files, it names the one that is wrong as the user gave it."""
    if config.format == "parallel":
        for side, path in zip(("source", "target"), config.train):
            one = replace(config, task="language-model", format="text", train=(path,), columns=())
            _naming(f"{setting(side)}: ", one)
    return _naming("", config)


def _naming(side: str, config: DataConfig) -> list[Input]:
    try:
        return find_inputs(config, "train")
    except DataError as error:
        found = with_marks(error.message)
        if not found.startswith("data.train: "):
            raise
        raise DataError(side + found.removeprefix("data.train: ")) from None


def _departure(source: Path, target: Path, counts: list[int]) -> str:
    """Say where two files get out of step, and what to do there."""
    if max(counts) > MOST_LINES:
        return f"{REMEDY}, or give the pairs as a table"
    sides: list[list[str]] = []
    for path in (source, target):
        with ExitStack() as stack:
            text = open_bytes(path, stack).data.read().decode("utf-8", errors="replace")
        sides.append(text.removesuffix("\n").split("\n"))
    names = source.name, target.name
    return f"{describe_departure(sides[0], sides[1], names)}, or give the pairs as a table"


def _same_bytes(first: Path, second: Path) -> bool:
    if first.stat().st_size != second.stat().st_size:
        return False
    return first.samefile(second) or sha256_of(first) == sha256_of(second)


def survey(config: DataConfig, folder: Path, sample_bytes: int = 1_000_000) -> Survey:
    """Read the training files, whose paths are absolute, and write a sample into `folder`."""
    whole = replace(config, held_out=0.0, held_out_test=0.0)
    file = folder / "sample"
    documents = n_bytes = longest = sampled = 0
    longest_text = b""
    reader = Reader(find_inputs(whole, "train"), whole, "train")
    reader.sieve.has_recipe = False  # it is being made
    with file.open("w", encoding="utf-8", newline="\n") as out:
        for document in reader.documents(Cursor(), {}):
            sides = [text.encode() for text in document.texts]
            documents += 1
            n_bytes += sum(map(len, sides))
            if longest < max(map(len, sides)):
                longest = max(map(len, sides))
                longest_text = max(sides, key=len)[:LONGEST_HEAD]
            if sampled < sample_bytes:
                # A whole book is cut, at a place that may not be between two characters.
                pieces = [side[:sample_bytes].decode(errors="ignore") for side in sides]
                sampled += sum(len(piece.encode()) for piece in pieces)
                line = json.dumps(dict(zip(config.sides, pieces)), ensure_ascii=False)
                out.write(f"{pieces[0] if config.format == 'text' else line}\n")
    if not documents:
        why = why_nothing(config, reader.sieve.counts)
        raise DataError(f"{', '.join(config.train)}: no text is left; {why}")
    layout: dict[str, Any] = {}
    if config.format != "text":  # whatever it was
        layout = {"format": "jsonl", "columns": config.sides}
    return Survey(
        documents=documents,
        n_bytes=n_bytes,
        longest=longest,
        longest_text=longest_text.decode(errors="ignore"),
        sample=replace(whole, train=(str(file),), **layout),
        sample_bytes=sampled,
        skipped=dict(reader.sieve.counts),
    )
