"""Exercise 9, the reference."""

from collections import Counter
from itertools import pairwise


def merge_pair(tokens: list[str], pair: tuple[str, str]) -> list[str]:
    """Merges from left to right; a merge takes two tokens, anything else one."""
    merged: list[str] = []
    i = 0
    while i < len(tokens):
        if tuple(tokens[i : i + 2]) == pair:
            merged.append(pair[0] + pair[1])
            i += 2
        else:
            merged.append(tokens[i])
            i += 1
    return merged


def learn_merges(text: str, n_merges: int) -> list[tuple[str, str]]:
    """Count, take the best, merge, and count again."""
    words = [list(word) for word in text.split()]
    merges: list[tuple[str, str]] = []
    for _ in range(n_merges):
        counts = Counter(pair for word in words for pair in pairwise(word))
        if not counts:
            break
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        words = [merge_pair(word, best) for word in words]
        merges.append(best)
    return merges


def encode_word(word: str, merges: list[tuple[str, str]]) -> list[str]:
    """All merges, in the order in which they were learnt."""
    tokens = list(word)
    for pair in merges:
        tokens = merge_pair(tokens, pair)
    return tokens
