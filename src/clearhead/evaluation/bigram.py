"""The baseline that a language model must beat: a table of which token follows which.

Every pair is counted in the training text. A fixed part of each count is given to pairs that were
not seen, in proportion to how often their second token occurs (absolute discounting)."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clearhead.data.corpus import Corpus

AT_MOST = 5_000_000  # the highest number of tokens that are counted, and that are measured
DISCOUNT = 0.75


@dataclass(frozen=True, kw_only=True)
class BigramBaseline:
    """The result of the table: its perplexity per token."""

    per_token: float
    learnt_from: int

    def __str__(self) -> str:
        return (
            f"{self.per_token:,.3f} per token (a table of which token follows which, counted in "
            f"{self.learnt_from:,} tokens)"
        )


def bigram_baseline(corpus: Corpus, split: str) -> BigramBaseline:
    """Count the pairs of tokens of the training split, and measure on another split."""
    counted, measured = (_tokens(corpus, name) for name in ("train", split))
    log_probs = _log_probs(counted, measured, corpus.tokenizers["text"].vocab_size)
    return BigramBaseline(per_token=math.exp(-log_probs.mean()), learnt_from=len(counted))


def _tokens(corpus: Corpus, split: str) -> NDArray[np.int64]:
    store = corpus.store(split, "text")
    return store.read(0, min(store.n_tokens, AT_MOST))


def _log_probs(
    counted: NDArray[np.int64], measured: NDArray[np.int64], vocab_size: int
) -> NDArray[np.float64]:
    """Return log p of every measured token after its first, given the token before it."""
    frequency = np.bincount(counted, minlength=vocab_size) + 1.0
    share = frequency / frequency.sum()
    pairs, counts = np.unique(counted[:-1] * vocab_size + counted[1:], return_counts=True)
    firsts = pairs // vocab_size
    total = np.bincount(firsts, weights=counts, minlength=vocab_size)
    distinct = np.bincount(firsts, minlength=vocab_size)

    before, after = measured[:-1], measured[1:]
    wanted = before * vocab_size + after
    places = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
    seen = np.where(pairs[places] == wanted, counts[places] - DISCOUNT, 0.0)
    left = np.where(total[before] > 0, DISCOUNT * distinct[before], 1.0)
    p = (seen + left * share[after]) / np.maximum(total[before], 1.0)
    return np.log(p)
