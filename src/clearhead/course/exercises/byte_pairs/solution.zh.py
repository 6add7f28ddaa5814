"""练习 9，参考答案"""

from collections import Counter
from itertools import pairwise


def merge_pair(tokens: list[str], pair: tuple[str, str]) -> list[str]:
    """从左往右；合并时前进两个词元，否则前进一个。"""
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
    """数一遍，取最多的一对，合并，再重新数。"""
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
    """按学到的次序，把全部合并做一遍。"""
    tokens = list(word)
    for pair in merges:
        tokens = merge_pair(tokens, pair)
    return tokens
