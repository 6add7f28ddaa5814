"""The largest of many scores, exactly: of equal ones, the one with the lowest index."""

import torch
from torch import Tensor

N_BLOCKS = 64


def argmax(scores: Tensor) -> list[int]:
    """Of each row. On the CPU numpy's is ten times as fast as torch's, and as exact."""
    if scores.device.type == "cpu" and scores.dtype in (torch.float32, torch.float64):
        return scores.numpy().argmax(axis=1).tolist()
    return scores.argmax(dim=1).tolist()


def top_of_group(scores: Tensor, offsets: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of scores[g, w, v] + offsets[g, w] over all (w, v) of each group g, in falling
    order: their values and the indices w · vocab + v, both (groups, k).

    The k largest lie in the k blocks that have the largest maxima, so that most scores are only
    ever compared once, by a kernel that is as fast as memory. Where two of the largest are equal,
    the order is made by a stable sort instead.
    """
    n_groups, width, vocab = scores.shape
    rows = vocab // N_BLOCKS
    if rows < 2 or width * N_BLOCKS < k:
        return _sorted_top(scores, offsets, k)
    # Block b is the scores b, b + N_BLOCKS, …: the maximum over rows of a rectangle.
    rectangle = scores[:, :, : rows * N_BLOCKS].unflatten(2, (rows, N_BLOCKS))
    tail = scores[:, :, rows * N_BLOCKS :] + offsets[:, :, None]
    maxima = (rectangle.amax(dim=2) + offsets[:, :, None]).flatten(1)
    best = maxima.topk(min(k + 1, maxima.shape[1]), dim=1)
    block = best.indices[:, :k]
    hypothesis, number = block // N_BLOCKS, block % N_BLOCKS
    group = torch.arange(n_groups, device=scores.device)[:, None]
    inside = rectangle[group, hypothesis, :, number] + offsets.gather(1, hypothesis)[:, :, None]
    place = torch.arange(rows, device=scores.device) * N_BLOCKS
    index = (hypothesis * vocab + number)[:, :, None] + place
    in_tail = torch.arange(rows * N_BLOCKS, vocab, device=scores.device)
    tail_index = (torch.arange(width, device=scores.device)[:, None] * vocab + in_tail).flatten()
    candidates = torch.cat((inside.flatten(1), tail.flatten(1)), dim=1)
    indices = torch.cat((index.flatten(1), tail_index.expand(n_groups, -1)), dim=1)
    found = candidates.topk(min(k + 1, candidates.shape[1]), dim=1)
    values, indices = found.values[:, :k], indices.gather(1, found.indices[:, :k])
    tied = _has_ties(found.values) | _has_ties(best.values[:, k - 1 :])
    if bool(tied.any()):
        values[tied], indices[tied] = _sorted_top(scores[tied], offsets[tied], k)
    return values, indices


def _has_ties(falling: Tensor) -> Tensor:
    """Which rows hold a number twice."""
    one, next_one = falling[:, :-1], falling[:, 1:]
    return ((one == next_one) & (one > -torch.inf)).any(dim=1)


def _sorted_top(scores: Tensor, offsets: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Only what is no less than the k-th largest has to be sorted; NaN counts as the largest."""
    everything = (scores + offsets[:, :, None]).flatten(1)
    least = everything.topk(k, dim=1).values[:, -1:]
    chosen: list[Tensor] = []
    for row, less in zip(everything, everything < least):
        others = (~less).nonzero()[:, 0]
        chosen.append(others[row[others].sort(descending=True, stable=True).indices[:k]])
    indices = torch.stack(chosen)
    return everything.gather(1, indices), indices
