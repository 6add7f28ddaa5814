"""Decides which sentences count as equal, and holds out lines in such a way that no sentence is on
both sides."""

import hashlib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np

from clearhead.config.data import INVALID_INPUT, DataConfig
from clearhead.errors import DataError
from clearhead.intake.formats import read_documents
from clearhead.intake.invalid_input import Sieve
from clearhead.intake.unpack import Input, opened

LARGE = 0.1  # a group with more of what is to be held out is taken only if the others are too few
FLOOR = 0.5  # of what is to be held out: with less, documents are joined by their sources alone
AT_MOST = 1.5  # of it: a group that would give more stays in the training part
SEED = b"held out by clearhead"  # decides which groups are held out; nothing else depends on it

_LETTER = r"[^\W\d_]"
# Signs that distinguish texts. Of numbers: before a digit and not after a letter (2.5 and 25, -5
# and 5, 1/2, 3-5, 10:30; not COVID-19). Behind a letter: C++ and C#. The first class contains what
# a search finds quickly.
_SIGNS = re.compile(
    r"([.,:/٫٬+#-](?:"
    rf"(?<![+#])(?=\d)(?<!{_LETTER}.)|(?<=[+#])(?:(?<={_LETTER}.)|(?<={_LETTER}[+#].))"
    r"))"
)
_SIGNS_ALIKE = ("−", "-"), ("–", "-"), ("⁄", "/")  # minus sign, en dash, and the sign inside ½


class _Words(dict[int, int | None]):
    """A table for `str.translate` that removes punctuation, white space, symbols and invisible
    characters. Marks stay, because vowels of Hindi and tones of Thai are marks."""

    def __missing__(self, code: int) -> int | None:
        letter = chr(code)
        # characters that are marks by name, such as those of emoji
        decides_looks = "\ufe00" <= letter <= "\ufe0f"
        goes = unicodedata.category(letter)[0] in "PZCS" or decides_looks
        self[code] = None if goes else code
        return self[code]


_WORDS = _Words()


def same_key(text: str) -> int:
    """Return a key that is equal for sentences that differ only in case, punctuation, white space
    or width."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    for sign, usual in _SIGNS_ALIKE:
        plain = plain.replace(sign, usual)
    if _SIGNS.search(plain):
        pieces = _SIGNS.split(plain)  # text, sign, text, …
        pieces[::2] = [piece.translate(_WORDS) for piece in pieces[::2]]
        words = "".join(pieces)
    else:
        words = plain.translate(_WORDS)
    return int.from_bytes(
        hashlib.blake2b((words or plain).encode(), digest_size=8).digest(), "little"
    )


class Lines(NamedTuple):
    """The lines of an input that belong to a split. A line that cannot be read has no sentence; it
    belongs to the training part, which reports it."""

    numbers: frozenset[int]
    others: bool
    """True if all other lines are meant."""

    def __contains__(self, line: object) -> bool:
        return (line in self.numbers) != self.others


def lines_of(split: str, inputs: Sequence[Input], config: DataConfig) -> list[Lines]:
    """Return the lines of each input that belong to a split. Equal sentences stay together."""
    held_out = _held_out(tuple(inputs), config, _stamps(inputs)).splits
    if split == "train":
        return [
            Lines(frozenset(n for n in lines if lines[n] != "train"), True) for lines in held_out
        ]
    return [Lines(frozenset(n for n in lines if lines[n] == split), False) for lines in held_out]


def shared_targets(inputs: Sequence[Input], config: DataConfig) -> str:
    """Describe pairs that share so many sentences that only their sources are kept apart. The text
    is empty if both sides are kept apart."""
    if config.hold_out != "groups" or not config.held_out_splits:
        return ""
    held_out = _held_out(tuple(inputs), config, _stamps(inputs))
    if not held_out.shared:
        return ""
    return (
        f"many pairs share a sentence: {held_out.shared:,} pairs that are held out have one that "
        "training has too; their sources differ"
    )


def _stamps(inputs: Sequence[Input]) -> tuple[int, ...]:
    return tuple(path.stat().st_mtime_ns for input_files in inputs for path in input_files.paths)


class _HeldOut(NamedTuple):
    splits: list[dict[int, str]]
    """For each input, the split of every line that can be read."""
    shared: int
    """The number of held-out lines with a sentence that is also in the training text."""


@lru_cache(maxsize=2)
def _held_out(
    inputs: tuple[Input, ...],
    config: DataConfig,
    stamps: tuple[int, ...],  # noqa: ARG001 (a file that has changed is read again)
) -> _HeldOut:
    """Hold out documents in groups: documents that share a sentence form one group, and only the
    sentences decide the order in which groups are drawn. If a few targets are on very many lines,
    or if each source was the target before, this leaves too little for measuring; then only
    documents with the same source are joined."""
    places: list[tuple[int, int]] = []
    keys: list[list[int]] = []
    # The training part reports lines that cannot be used.
    lenient = replace(config, skip=INVALID_INPUT, held_out=0.0, held_out_test=0.0, clean=())
    for number, input_files in enumerate(inputs):
        with opened(input_files) as files:
            for document in read_documents(files, "train", Sieve(lenient)):
                places.append((number, document.place.line))
                keys.append([same_key(text) for text in document.texts[:2]])
    n = len(places)
    if not n:
        return _HeldOut([{} for _ in inputs], 0)
    counts = {
        split: len(config.share(split, n))
        for split in ("test", "valid")
        if split in config.held_out_splits
    }
    table = np.array(keys, np.uint64)
    # equal labels do not join documents
    sides = 1 if config.task == "classification" else table.shape[1]
    parts = _draw(_connected(table[:, :sides]), table[:, 0], counts)
    shared = 0
    if parts is None and sides == 2:
        parts = _draw(_connected(table[:, :1]), table[:, 0], counts)
        if parts is not None:
            held_out = parts != "train"
            shared = int(np.isin(table[held_out], table[~held_out]).any(axis=1).sum())
    if parts is None:
        different = len(np.unique(table[:, 0]))
        names = ", ".join(str(path) for input_files in inputs for path in input_files.paths)
        raise DataError(
            f"{names}: {n:,} lines hold only {different:,} different texts, too few to hold "
            f"out {sum(counts.values()):,} lines that are not in the training text; give more "
            "text, or files for data.valid and data.test"
        )
    by_input: list[dict[int, str]] = [{} for _ in inputs]
    for (number, line), part in zip(places, parts.tolist()):
        by_input[number][line] = part
    return _HeldOut(by_input, shared)


def _connected(
    keys: np.ndarray[tuple[int, int], np.dtype[np.uint64]],
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the number of each document's group, which is the number of its first document.
    Documents with an equal key are joined, whichever column the key is in, since a file may contain
    pairs in both directions. Each round passes the smallest number on through all keys, until
    nothing changes."""
    different, numbers = np.unique(keys, return_inverse=True)
    columns = numbers.reshape(keys.shape).T
    group = np.arange(len(keys))
    smallest = np.full(len(different), len(keys))
    while True:
        before = group
        for column in columns:
            np.minimum.at(smallest, column, before)
        # A group takes over what any of its documents has found, so the number of rounds is the
        # logarithm of the longest chain. In a dialogue, that chain contains every line.
        group = before.copy()
        np.minimum.at(group, before, smallest[columns].min(axis=0))
        group = group[group[before]]
        if np.array_equal(group, before):
            return group


def _draw(groups: np.ndarray, keys: np.ndarray, counts: Mapping[str, int]) -> np.ndarray | None:
    """Decide the part of each document. Test and validation are filled with whole groups: first
    small groups in the order of the draw, and then, if these are too few, larger groups from the
    smallest on. Returns None if some part stays below its minimum."""
    numbers, first, sizes = np.unique(groups, return_index=True, return_counts=True)
    parts = np.full(len(numbers), "train", dtype="<U5")
    draw = [
        hashlib.blake2b(int(key).to_bytes(8, "little"), key=SEED, digest_size=8).digest()
        for key in keys[first]
    ]
    order = iter(sorted(range(len(numbers)), key=draw.__getitem__))
    for split, count in counts.items():
        taken, passed = 0, []
        for group in order:
            if taken >= count:
                order = chain(passed, [group], order)
                break
            if sizes[group] > max(1, LARGE * count):
                # the group is too large for this part, but perhaps not for the other
                passed.append(group)
                continue
            parts[group] = split
            taken += int(sizes[group])
        else:
            passed.sort(key=lambda group: sizes[group])
            while passed and taken + sizes[passed[0]] <= AT_MOST * count and taken < count:
                parts[passed[0]] = split
                taken += int(sizes[passed.pop(0)])
            order = iter(passed)
        if taken < FLOOR * count:
            return None
    if counts and not (parts == "train").any():
        return None
    return parts[np.searchsorted(numbers, groups)]
