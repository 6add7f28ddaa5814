"""Exercise 18: find the induction head (chapter 13).

A text of random tokens is followed by its repetition. Nothing but the repetition helps to predict
the second half. An induction head looks, from each token of the second half, at the token *after*
the earlier occurrence of the same token:

    place     0 1 2 3 4 5 6 7        period 4
    token     a b c d a b c d
    looks at          1 2 3 4        the queries are 4, 5, 6, 7

A previous-token head looks, from every token but the first, at the one before it.

Replace each blank() and save. Check: clearhead learn check
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from clearhead.course import blank


def repeated_texts(n_texts: int, period: int, vocab_size: int, seed: int) -> Tensor:
    """→ ids (n_texts, 2 · period), 0 to vocab_size − 1: each text has a random first half of its
    own, and its second half repeats the first. The same seed gives the same texts, another seed
    others; random numbers that other code draws do not change."""
    return blank()


def induction_scores(weights: Tensor, period: int) -> Tensor:
    """weights (batch, heads, query, key) of one layer on such texts → (heads,): the mean weight,
    over texts and the queries of the second half, on the place where an induction head looks."""
    return blank()


def previous_scores(weights: Tensor) -> Tensor:
    """weights (batch, heads, query, key) → (heads,): the mean weight on the token before, over
    texts and all queries but the first."""
    return blank()


def find_circuit(
    layers: Sequence[Tensor], period: int, threshold: float
) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """The weights of each layer, from the first → every pair of a previous-token head and an
    induction head in a *later* layer, whose scores both exceed the threshold. A head is (layer,
    head). Pairs with the highest product of both scores come first. No two products are equal."""
    return blank()
