"""Exercise 16: beam search with finished hypotheses (chapter 10).

A search of width 2 keeps the two likeliest texts. The score of a text is the sum of the
log-probabilities of its tokens. Greedy takes A here, the beam finds B:

    A 0.5, then the best is 0.4:  0.20
    B 0.4, then the best is 0.9:  0.36

A text that ends with `eos` is finished. It is not extended, and it keeps its place in the beam as
long as its score is among the best `width`: at each step finished texts, as they are, and all
extensions of the others compete. The search ends when every text of the beam is finished, or after
`max_new` steps. Then the best text is the one with the highest score / length ** alpha, where the
length counts all its tokens, `eos` included. No two scores are equal here.

Replace each blank() and save. Check: clearhead learn check
"""

from collections.abc import Callable

import torch
from torch import Tensor

from clearhead.course import blank

BeamTokens = tuple[int, ...]


def extend(scores: Tensor, log_probs: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """scores (beam,) of texts, log_probs (beam, vocab) of their next tokens → scores, parents and
    tokens of the best extensions over all texts together, best first: `width` of them, or all if
    there are fewer. A parent is the number of the text that is extended. The tensors that come
    in stay as they were."""
    return blank()


def search(
    next_log_probs: Callable[[BeamTokens], Tensor],
    *,
    width: int,
    eos: int,
    max_new: int,
    alpha: float,
) -> tuple[BeamTokens, float]:
    """next_log_probs(tokens) gives the log-probabilities (vocab,) of what follows these tokens; the
    search begins with no tokens, (). → the best text of the last beam and its score (the sum).
    next_log_probs is not called for finished texts."""
    return blank()
