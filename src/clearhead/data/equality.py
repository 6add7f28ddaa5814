"""Which sentences count as equal, and what is held out so that no sentence stands on two sides."""

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np

from clearhead.config.data import DIRT, DataConfig
from clearhead.data.dirt import Sieve
from clearhead.data.formats import read_documents
from clearhead.data.unpack import Input, opened

LARGE = 0.1  # a group with more of what is to be held out stays in the training part
SEED = b"held out by clearhead"  # decides which groups are held out; nothing else depends on it

_NOT_WORDS = re.compile(r"[\W_]+")


def same_key(text: str) -> int:
    """Equal for sentences that differ only in case, punctuation, white space or width."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    words = _NOT_WORDS.sub("", plain) or plain
    return int.from_bytes(hashlib.blake2b(words.encode(), digest_size=8).digest(), "little")


class Lines(NamedTuple):
    """The lines of an input that belong to a split. A line that cannot be read has no sentence and
    belongs to the training part, which reports it."""

    numbers: frozenset[int]
    others: bool
    """Whether all other lines are meant."""

    def __contains__(self, line: object) -> bool:
        return (line in self.numbers) != self.others


def lines_of(split: str, inputs: Sequence[Input], config: DataConfig) -> list[Lines]:
    """The lines of each input that belong to a split, where equal sentences stay together."""
    stamps = tuple(path.stat().st_mtime_ns for each in inputs for path in each.paths)
    held_out = _held_out(tuple(inputs), config, stamps)
    if split == "train":
        return [
            Lines(frozenset(n for n in lines if lines[n] != "train"), True) for lines in held_out
        ]
    return [Lines(frozenset(n for n in lines if lines[n] == split), False) for lines in held_out]


@lru_cache(maxsize=2)
def _held_out(
    inputs: tuple[Input, ...],
    config: DataConfig,
    stamps: tuple[int, ...],  # noqa: ARG001 (a file that has changed is read again)
) -> list[dict[int, str]]:
    """Of each input, the split of every line that can be read. Documents that share a sentence are
    one group; groups are drawn in an order that only their sentences decide."""
    places: list[tuple[int, int]] = []
    keys: list[list[int]] = []
    lenient = _lenient(config)
    for number, each in enumerate(inputs):
        with opened(each) as files:
            for document in read_documents(files, lenient, "train", Sieve(lenient)):
                places.append((number, document.place.line))
                keys.append([same_key(text) for text in document.texts[:2]])
    n = len(places)
    texts = 1 if config.task == "classification" else None  # equal labels join nothing
    groups = _connected(np.array([each[:texts] for each in keys], np.uint64).reshape(n, -1))
    parts = _draw(groups, np.array([each[0] for each in keys], np.uint64), config)
    found: list[dict[int, str]] = [{} for _ in inputs]
    for (number, line), part in zip(places, parts):
        found[number][line] = part
    return found


def _lenient(config: DataConfig) -> DataConfig:
    """What cannot be used is for the training part to report."""
    return replace(config, skip=DIRT, held_out=0.0, held_out_test=0.0, clean=())


def _connected(
    keys: np.ndarray[tuple[int, int], np.dtype[np.uint64]],
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The number of each document's group: documents with an equal key in some column are joined.
    Each round hands the smallest number on through all columns, until nothing changes."""
    n = len(keys)
    group = np.arange(n)
    columns = [np.unique(column, return_inverse=True)[1] for column in keys.T]
    while True:
        before = group
        for column in columns:
            smallest = np.full(column.max(initial=-1) + 1, n)
            np.minimum.at(smallest, column, group)
            group = smallest[column]
        if np.array_equal(group, before):
            return group


def _draw(groups: np.ndarray, keys: np.ndarray, config: DataConfig) -> list[str]:
    """Test first, then validation, each filled with whole groups; the rest is for training."""
    numbers, first, sizes = np.unique(groups, return_index=True, return_counts=True)
    n, parts = len(groups), np.full(len(numbers), "train", dtype="<U5")
    draw = [
        hashlib.blake2b(int(key).to_bytes(8, "little"), key=SEED, digest_size=8).digest()
        for key in keys[first]
    ]
    order = iter(sorted(range(len(numbers)), key=draw.__getitem__))
    for split in ("test", "valid"):
        wanted = len(config.share(split, n)) if split in config.held_out_splits else 0
        taken, passed = 0, []
        for group in order:
            if taken >= wanted:
                order = chain(passed, [group], order)
                break
            if sizes[group] > max(1, LARGE * wanted):
                passed.append(group)  # too large here, and maybe not for the other
                continue
            parts[group] = split
            taken += int(sizes[group])
    return parts[np.searchsorted(numbers, groups)].tolist()
