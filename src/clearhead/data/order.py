"""Decides the order of the samples: a keyed permutation of 0…n-1 that is computed, never stored.
Any part of the order costs the same for a thousand samples and for 10¹².

A Feistel network permutes all numbers with a given number of bits. A result outside 0…n-1 goes
through the network again until it falls inside (cycle walking: Black and Rogaway, 2002); this is
again a permutation.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

from clearhead.data.token_files import Integers

Words = NDArray[np.uint64]
N_ROUNDS = 8  # four rounds mix well; a small n, with few bits on each side, needs more


def derive_key(*parts: int | str) -> int:
    """Derive a key of 64 bits that depends on every part, so that one seed serves epochs, windows
    and samples."""
    text = "/".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def mix(words: Words, key: int) -> Words:
    """Compute a fixed random-looking function of 64 bits (the finaliser of SplitMix64)."""
    words = words + np.uint64((key + 0x9E3779B97F4A7C15) % 2**64)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def permute(places: Integers, n: int, key: int) -> Integers:
    """Return the samples at these places in the order of n samples."""
    keys = [derive_key(key, number) for number in range(N_ROUNDS)]
    bits = max(2, (n - 1).bit_length())
    moved = places.astype(np.uint64)
    outside = np.arange(len(moved))
    while len(outside):
        moved[outside] = _feistel(moved[outside], bits, keys)
        outside = outside[moved[outside] >= n]
    return moved.astype(np.int64)


def _feistel(words: Words, bits: int, keys: list[int]) -> Words:
    low_bits = bits // 2
    high_bits = bits - low_bits
    high, low = words >> np.uint64(low_bits), words & _ones(low_bits)
    for key in keys:
        high, low = low, high ^ (mix(low, key) & _ones(high_bits))
        high_bits, low_bits = low_bits, high_bits
    return (high << np.uint64(low_bits)) | low


def _ones(bits: int) -> np.uint64:
    return np.uint64((1 << bits) - 1)
