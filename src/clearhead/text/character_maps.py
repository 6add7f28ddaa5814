"""Reads the map of characters that a sentencepiece tokenizer contains (`Precompiled`), to find how
much longer the map can make a text."""

import base64
import binascii
import unicodedata
from collections.abc import Iterator
from math import ceil

import numpy as np

from clearhead.errors import DataError

MAX_OPEN = 20_000
"""Beginnings of one length; a map of all of Unicode has 2,000."""
MAX_KEY = 5
"""Bytes: what is longer is looked up character by character."""
LEAF, WIDE, LABEL = 1 << 8, 1 << 9, (1 << 31) | 0xFF


def map_growth(encoded: str, *, compatible: bool) -> int:
    """Return how many times longer the map can make a text. `compatible` says that the text has
    already been brought into a compatible form (NFKC, NFKD), so that most of the map's entries
    never occur."""
    try:
        content = base64.b64decode(encoded, validate=True)
    except binascii.Error:
        content = b""
    n_bytes = int.from_bytes(content[:4], "little")
    trie = np.frombuffer(content[4 : 4 + n_bytes // 4 * 4], "<u4").astype(np.int64)
    texts = content[4 + n_bytes :]
    growth = 1
    for key, start in _entries(trie):
        end = texts.find(b"\0", start)
        longer = ceil(((len(texts) if end < 0 else end) - start) / len(key))
        if longer > growth and not (compatible and _never_occurs(key)):
            growth = longer
    return growth


def _entries(trie: np.ndarray) -> Iterator[tuple[bytes, int]]:
    """Yield each key of the map (a double array of Darts-clone) and the place where its text
    starts. Of keys that begin with one another, the library uses only the shortest."""
    if len(trie) == 0:
        return
    open_ones, keys = _after(trie, np.zeros(1, np.int64)), np.zeros((1, 0), np.uint8)
    letters = np.arange(1, 256)
    for _ in range(MAX_KEY):
        if len(open_ones) > MAX_OPEN:
            has = f"the tokenizer's map has more than {MAX_OPEN:,} beginnings"
            raise DataError(f"{has}; is it damaged?")
        places = open_ones[:, None] ^ letters
        inside = places < len(trie)
        units = np.where(inside, trie[np.where(inside, places, 0)], 0)
        before, letter = np.nonzero(inside & ((units & LABEL) == letters))
        places = places[before, letter]
        keys = np.concatenate([keys[before], letters[letter, None].astype(np.uint8)], axis=1)
        values, is_leaf = _after(trie, places), (trie[places] & LEAF) != 0
        ends = is_leaf & (values < len(trie))
        for key, start in zip(keys[ends], trie[values[ends]] & ~(1 << 31)):
            yield key.tobytes(), int(start)
        open_ones, keys = values[~is_leaf], keys[~is_leaf]


def _after(trie: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return the place at which the following letters are looked up."""
    units = trie[places]
    return places ^ ((units >> 10) << ((units & WIDE) >> 6))


def _never_occurs(key: bytes) -> bool:
    try:
        return not unicodedata.is_normalized("NFKD", key.decode())
    except UnicodeDecodeError:
        return True
