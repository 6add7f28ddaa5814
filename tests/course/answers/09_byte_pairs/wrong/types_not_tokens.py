from collections import Counter
from itertools import pairwise

from clearhead.course.earlier import merge_pair


def learn_merges(text, n_merges):
    vocabulary = {word: list(word) for word in text.split()}
    merges = []
    for _ in range(n_merges):
        counts = Counter()
        for tokens in vocabulary.values():
            counts.update(pairwise(tokens))
        if not counts:
            break
        pair = min(counts, key=lambda p: (-counts[p], p))
        merges.append(pair)
        for word, tokens in vocabulary.items():
            vocabulary[word] = merge_pair(tokens, pair)
    return merges
