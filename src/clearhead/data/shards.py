"""Turns one split into token files, shard by shard. Each complete shard has a record; a restarted
run continues from the last record, so it does not matter where it was killed."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clearhead.config.data import DataConfig
from clearhead.data.encode import Encoded, TaughtTerms, encode_in_order, encode_labels
from clearhead.data.manifest import SplitFacts, read_note, to_json
from clearhead.data.token_files import INDEX, FileFacts, TokenFileWriter, token_dtype
from clearhead.errors import DataError
from clearhead.files import write_whole
from clearhead.intake.cleaning import removed
from clearhead.intake.formats import Document
from clearhead.intake.invalid_input import Place, Sieve, why_nothing
from clearhead.intake.sources import Cursor, Input, Reader, located
from clearhead.text.labels import label_ids
from clearhead.text.tokenizer import Tokenizer

CHUNK_BYTES = 1 << 20  # bytes of text that one process encodes at a time
MEGABYTE = 1_000_000
SMALL = 1_000_000  # bytes of input; less is encoded before a second process could start


class Progress(NamedTuple):
    """The progress of a stage; `done` and `total` are bytes of input, as stored on the disk."""

    stage: str
    done: int
    total: int
    tokens: int = 0
    """The number of tokens that this process has written in this stage."""


OnProgress = Callable[[Progress], None]


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run of prepare."""

    config: DataConfig
    root: Path
    """The folder from which the recipe's paths start."""
    folder: Path
    processes: int = 1
    instead_of: Mapping[str, Any] = field(default_factory=dict)
    """The recipe's own values of the settings that were given on top of it."""
    report: OnProgress = lambda _: None

    @cached_property
    def text(self) -> DataConfig:
        """The settings, with the paths of the files."""
        return located(self.config, self.root)

    @property
    def work(self) -> Path:
        """The folder with the records of an unfinished run."""
        return self.folder / ".work"


class ShardRecord(NamedTuple):
    """The record of a complete shard."""

    files: list[FileFacts]
    longest: list[int]
    cursor: Cursor
    counts: dict[str, int]
    """The numbers of lines that the reader had rejected, by kind, when it was at the cursor."""
    too_long: int
    """The number of documents of this shard that had too many tokens."""


class Chunk(NamedTuple):
    """Documents that are encoded together, and the reader's position after the last of them."""

    texts: tuple[list[str], ...]
    places: list[Place]
    n_bytes: int
    cursor: Cursor
    counts: dict[str, int]
    consumed: int


class Shard:
    """A shard that is being written: one token file for each side."""

    def __init__(self, folder: Path, name: str, sides: dict[str, Tokenizer]) -> None:
        self.writers = [
            TokenFileWriter(folder, f"{name}.{side}.ds", token_dtype(tokenizer.vocab_size))
            for side, tokenizer in sides.items()
        ]
        self.longest = [0] * len(sides)
        self.n_bytes = self.too_long = 0
        self.cursor, self.counts = Cursor(), dict[str, int]()

    def add(self, chunk: Chunk, encoded: list[Encoded], sieve: Sieve) -> None:
        """Append the documents of a chunk."""
        limit = sieve.config.max_tokens
        if limit is not None:
            keep = _short_enough(chunk, encoded, limit, sieve)
            self.too_long += int((~keep).sum())
            encoded = [_only(keep, side) for side in encoded]
        for number, (writer, side) in enumerate(zip(self.writers, encoded)):
            writer.add(*side)
            self.longest[number] = max(self.longest[number], int(side.lengths.max(initial=0)))
        self.n_bytes += chunk.n_bytes
        self.cursor, self.counts = chunk.cursor, chunk.counts

    def finish(self, path: Path) -> ShardRecord:
        """Close the files, and then write the record, which says that they are complete."""
        files = [writer.finish() for writer in self.writers]
        record = ShardRecord(files, self.longest, self.cursor, self.counts, self.too_long)
        plain = record._asdict() | {"files": [facts._asdict() for facts in files]}
        write_whole(path, to_json(plain))
        return record


def write_split(
    job: Job,
    split: str,
    inputs: list[Input],
    sides: dict[str, Tokenizer],
    taught: TaughtTerms | None = None,
) -> SplitFacts:
    """Write the missing shards of a split, and return the facts of the whole split."""
    (job.folder / split).mkdir(exist_ok=True)
    records = _whole_shards(job, split)
    reader = Reader(inputs, job.config, split, removed=removed(job.text))
    cursor, counts = (records[-1].cursor, records[-1].counts) if records else (Cursor(), {})
    chunks = cut_into_chunks(reader, reader.documents(cursor, counts), len(sides))
    texts = [tokenizer for side, tokenizer in sides.items() if side != "label"]
    labels = None
    if "label" in sides:
        labels = label_ids(sides["label"], job.config.labels, job.config.label_as)
    sieve = Sieve(job.config)  # for defects that show only after tokenising
    total, written = sum(source.size for source in inputs), 0
    job.report(Progress(split, 0, total))
    processes = job.processes if total > SMALL else 1
    shard = None
    for chunk, encoded in encode_in_order(chunks, texts, processes, taught):
        if labels is not None:
            encoded.append(encode_labels(labels, chunk.texts[-1]))
        shard = shard or Shard(job.folder, f"{split}/{len(records):05d}", sides)
        shard.add(chunk, encoded, sieve)
        written += sum(len(source.tokens) for source in encoded)
        job.report(Progress(split, chunk.consumed, total, written))
        if shard.n_bytes >= job.config.shard_mb * MEGABYTE:
            records.append(shard.finish(_record_path(job, split, len(records))))
            shard = None
    if shard is not None:
        records.append(shard.finish(_record_path(job, split, len(records))))
    facts = _facts(records, reader.sieve.counts, list(sides))
    if not facts.documents:
        raise DataError(
            f"data.{split}: no document of the {len(inputs)} input file(s) is left; "
            f"{why_nothing(job.config, facts.skipped)}"
        )
    return facts


def cut_into_chunks(reader: Reader, documents: Iterator[Document], n_sides: int) -> Iterator[Chunk]:
    """Group documents into chunks that one process encodes at a time."""
    texts: tuple[list[str], ...] = tuple([] for _ in range(n_sides))
    places: list[Place] = []
    n_bytes = 0
    # The cursor is that of the last document: from there, the reader will again reject what
    # follows.
    cursor, counts = reader.cursor, dict(reader.sieve.counts)

    def chunk() -> Chunk:
        return Chunk(texts, places, n_bytes, cursor, counts, reader.consumed)

    for document in documents:
        for side, text in zip(texts, document.texts):
            side.append(text)
            n_bytes += len(text.encode("utf-8"))
        places.append(document.place)
        cursor, counts = reader.cursor, dict(reader.sieve.counts)
        if n_bytes >= CHUNK_BYTES:
            yield chunk()
            texts, places, n_bytes = tuple([] for _ in range(n_sides)), [], 0
    if places:
        yield chunk()


def _short_enough(
    chunk: Chunk, encoded: list[Encoded], limit: int, sieve: Sieve
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    longest = np.max([side.lengths for side in encoded], axis=0)
    for document in np.flatnonzero(longest > limit).tolist():
        what = f"{longest[document]} tokens, more than data.max_tokens={limit}"
        sieve.reject("too-long", chunk.places[document], what)
    return longest <= limit


def _only(keep: np.ndarray, encoded: Encoded) -> Encoded:
    return Encoded(encoded.tokens[np.repeat(keep, encoded.lengths)], encoded.lengths[keep])


def _record_path(job: Job, split: str, number: int) -> Path:
    return job.work / f"{split}-{number:05d}.json"


def _whole_shards(job: Job, split: str) -> list[ShardRecord]:
    """Return the shards of an earlier run, up to the first that is not complete."""
    records: list[ShardRecord] = []
    while (path := _record_path(job, split, len(records))).is_file():
        plain = read_note(path)
        try:
            plain["files"] = [FileFacts(**facts) for facts in plain["files"]]
            plain["cursor"] = Cursor(*map(int, plain["cursor"]))
            record = ShardRecord(**plain)
            if not all(_is_there(job.folder, facts) for facts in record.files):
                break
        except (KeyError, TypeError, ValueError):  # damaged: the shard is written again
            break
        records.append(record)
    return records


def _is_there(folder: Path, facts: FileFacts) -> bool:
    sizes = {facts.name: facts.tokens * facts.token_bytes, facts.name + INDEX: facts.documents * 8}
    return all(
        (folder / name).is_file() and (folder / name).stat().st_size == size
        for name, size in sizes.items()
    )


def _facts(records: list[ShardRecord], counts: Counter[str], sides: list[str]) -> SplitFacts:
    skipped = Counter(counts)
    skipped["too-long"] += sum(record.too_long for record in records)
    files = {side: [record.files[n] for record in records] for n, side in enumerate(sides)}
    return SplitFacts(
        documents=sum(facts.documents for facts in files[sides[0]]),
        tokens={side: sum(facts.tokens for facts in files[side]) for side in sides},
        longest={
            side: max((record.longest[n] for record in records), default=0)
            for n, side in enumerate(sides)
        },
        skipped={kind: skipped[kind] for kind in sorted(skipped) if skipped[kind]},
        files=files,
    )
