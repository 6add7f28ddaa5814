"""Finds the largest of many scores exactly. If scores are equal, the lowest index counts as the
largest."""

from typing import NamedTuple

import torch
from torch import Tensor

N_BLOCKS = 64


class Candidate(NamedTuple):
    """A token that may follow a hypothesis."""

    value: float
    """The value by which the candidate is ranked: the log-probability of the whole text, minus the
    penalty of diversity; -inf if the candidate cannot be chosen."""
    slot: int
    """The place of the hypothesis in its beam."""
    token: int
    log_prob: float
    """The log-probability of the token, computed by the model itself."""


def rank(
    log_probs: Tensor, ranked_by: Tensor, totals: Tensor, n: int, first_slot: int
) -> list[list[Candidate]]:
    """Return the n best continuations of each sentence's hypotheses, the best first. `log_probs`
    and `ranked_by` are (sentences, hypotheses, vocab). `totals` (sentences, hypotheses) are the
    log-probabilities of the hypotheses, or -inf if there is no hypothesis."""
    vocab = log_probs.shape[2]
    values, indices = top_of_each(ranked_by, totals, min(n, ranked_by[0].numel()))
    chosen = log_probs.flatten(1).gather(1, indices)
    columns = (values, indices // vocab + first_slot, indices % vocab, chosen)
    return [list(map(Candidate, *row)) for row in zip(*(column.tolist() for column in columns))]


def argmax(scores: Tensor) -> list[int]:
    """Return the index of the largest value of each row. On the CPU, numpy's argmax is ten times as
    fast as torch's, and just as exact."""
    if scores.device.type == "cpu" and scores.dtype in (torch.float32, torch.float64):
        return scores.numpy().argmax(axis=1).tolist()
    return scores.argmax(dim=1).tolist()


def top_of_each(scores: Tensor, offsets: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest of scores[s, h, v] + offsets[s, h] over all (h, v) of each sentence s,
    in falling order: their values and the indices h · vocab + v, both (sentences, k).

    torch's topk over a whole vocabulary would take as long as the model's step. But the k largest
    scores are in the k blocks that have the largest maxima, and a maximum is found as fast as
    memory is read. If two of the largest are equal, a stable sort decides their order instead.
    """
    n_sentences, n_hypotheses, vocab = scores.shape
    n_rows = vocab // N_BLOCKS
    if n_rows < 2 or n_hypotheses * N_BLOCKS < k:
        return _sorted_top(scores, offsets, k)
    # Block b is the scores b, b + N_BLOCKS, …: the maximum over the rows of a rectangle.
    rectangle = scores[:, :, : n_rows * N_BLOCKS].unflatten(2, (n_rows, N_BLOCKS))
    rest = scores[:, :, n_rows * N_BLOCKS :] + offsets[:, :, None]
    maxima = (rectangle.amax(dim=2) + offsets[:, :, None]).flatten(1)
    best = maxima.topk(min(k + 1, maxima.shape[1]), dim=1)
    hypothesis, block = best.indices[:, :k] // N_BLOCKS, best.indices[:, :k] % N_BLOCKS
    sentence = torch.arange(n_sentences, device=scores.device)[:, None]
    inside = rectangle[sentence, hypothesis, :, block] + offsets.gather(1, hypothesis)[:, :, None]
    row = torch.arange(n_rows, device=scores.device) * N_BLOCKS
    index = (hypothesis * vocab + block)[:, :, None] + row
    in_rest = torch.arange(n_rows * N_BLOCKS, vocab, device=scores.device)
    rest_index = torch.arange(n_hypotheses, device=scores.device)[:, None] * vocab + in_rest
    candidates = torch.cat((inside.flatten(1), rest.flatten(1)), dim=1)
    indices = torch.cat((index.flatten(1), rest_index.flatten().expand(n_sentences, -1)), dim=1)
    top = candidates.topk(min(k + 1, candidates.shape[1]), dim=1)
    values, indices = top.values[:, :k], indices.gather(1, top.indices[:, :k])
    tied = _has_ties(top.values) | _has_ties(best.values[:, k - 1 :])
    if bool(tied.any()):
        values[tied], indices[tied] = _sorted_top(scores[tied], offsets[tied], k)
    return values, indices


def _has_ties(falling: Tensor) -> Tensor:
    """Tell which rows contain a number twice."""
    score, next_score = falling[:, :-1], falling[:, 1:]
    return ((score == next_score) & (score > -torch.inf)).any(dim=1)


def _sorted_top(scores: Tensor, offsets: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Sort only scores that are no less than the k-th largest. NaN counts as the largest."""
    everything = (scores + offsets[:, :, None]).flatten(1)
    least = everything.topk(k, dim=1).values[:, -1:]
    chosen: list[Tensor] = []
    for row, less in zip(everything, everything < least):
        others = (~less).nonzero()[:, 0]
        chosen.append(others[row[others].sort(descending=True, stable=True).indices[:k]])
    indices = torch.stack(chosen)
    return everything.gather(1, indices), indices
