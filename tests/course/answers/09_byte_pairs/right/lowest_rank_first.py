from collections import defaultdict
from itertools import pairwise


def merge_pair(tokens, pair):
    if len(tokens) < 2:
        return tokens[:]
    if (tokens[0], tokens[1]) == pair:
        return [tokens[0] + tokens[1], *merge_pair(tokens[2:], pair)]
    return [tokens[0], *merge_pair(tokens[1:], pair)]


def learn_merges(text, n_merges):
    counts = defaultdict(int)
    for word in text.split():
        counts[tuple(word)] += 1
    merges = []
    while len(merges) < n_merges:
        pairs = defaultdict(int)
        for word, times in counts.items():
            for pair in pairwise(word):
                pairs[pair] += times
        if not pairs:
            return merges
        most = max(pairs.values())
        merges.append(min(pair for pair in pairs if pairs[pair] == most))
        merged = defaultdict(int)
        for word, times in counts.items():
            merged[tuple(merge_pair(list(word), merges[-1]))] += times
        counts = merged
    return merges


def encode_word(word, merges):
    rank = {pair: i for i, pair in enumerate(merges)}
    tokens = list(word)
    while True:
        best = min(pairwise(tokens), key=lambda p: rank.get(p, len(rank)), default=None)
        if best not in rank:
            return tokens
        tokens = merge_pair(tokens, best)
