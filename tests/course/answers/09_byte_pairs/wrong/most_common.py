from collections import Counter
from itertools import pairwise

from clearhead.course.earlier import merge_pair


def learn_merges(text, n_merges):
    words = [list(w) for w in text.split()]
    merges = []
    for _ in range(n_merges):
        counts = Counter(p for w in words for p in pairwise(w))
        if not counts:
            break
        pair, _ = counts.most_common(1)[0]
        merges.append(pair)
        words = [merge_pair(w, pair) for w in words]
    return merges
