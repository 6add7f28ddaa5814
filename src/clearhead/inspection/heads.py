"""Describes where a head looks, in numbers that need no labels."""

from contextlib import suppress
from typing import NamedTuple

import torch

from clearhead.errors import InputError
from clearhead.inspection.sites import names
from clearhead.inspection.trace import Trace, checked_trace
from clearhead.shapes import Bool, Float, Tensor, Weights


class HeadShares(NamedTuple):
    """Means over the queries: one number for each head of one attention."""

    entropy: Float[Tensor, " head"]
    """The entropy in nats: 0 if a head looks at one key, and ln of the number of keys if it looks
    at all keys equally."""
    first: Float[Tensor, " head"]
    """The share of attention on the first token, at which heads often look if nothing else is
    relevant."""
    same: Float[Tensor, " head"]
    """The share of attention on the key with the query's own number."""
    previous: Float[Tensor, " head"]
    """The share of attention on the key before that one."""


def head_shares(weights: Weights, real_queries: Bool[Tensor, "batch query"]) -> HeadShares:
    """Compute the four means of each head, for weights without padding on the left."""
    n_queries, n_keys = weights.shape[-2:]
    count = real_queries.sum().clamp(min=1)
    rows, columns = (torch.arange(n, device=weights.device) for n in (n_queries, n_keys))
    offset = columns[None, :] - rows[:, None]

    def mean(per_query: Float[Tensor, "batch head query"]) -> Tensor:
        return (per_query * real_queries[:, None]).sum(dim=(0, 2)) / count

    return HeadShares(
        entropy=mean(torch.special.entr(weights).sum(dim=-1)),
        first=mean(weights[..., 0]),
        same=mean((weights * (offset == 0)).sum(dim=-1)),
        previous=mean((weights * (offset == -1)).sum(dim=-1)),
    )


def head_kinds(t: Trace) -> dict[str, HeadShares]:
    """Compute how much of each head's attention falls on each kind of position, for every attention
    that the trace has read."""
    shares: dict[str, HeadShares] = {}
    for name in names(checked_trace(t).model, "*.weights"):
        if name in t:
            tower = "encoder" if name.startswith("encoder") else "decoder"
            queries = t.real(tower)
            weights = joined_weights(t, name)
            keys = queries
            if "cross" in name:
                keys = torch.ones_like(weights[:, 0, 0], dtype=torch.bool)
                with suppress(InputError):  # the encoder may have run before the trace
                    keys = t.real("encoder")
            shares[name] = head_shares(*_without_padding_on_the_left(weights, queries, keys))
    return shares


def joined_weights(t: Trace, name: str) -> Weights:
    """Join the weights of all calls. A cache keeps no padding, so its keys are not at the positions
    of the queries of a padded batch."""
    if len(t.calls(name)) > 1 and not t.real_of(name).all():
        raise InputError(
            f"{name}: texts of several lengths were decoded together; trace one text at a time"
        )
    return t.joined(name)


def _without_padding_on_the_left(
    weights: Weights, queries: Bool[Tensor, "batch query"], keys: Bool[Tensor, "batch key"]
) -> tuple[Weights, Bool[Tensor, "batch query"]]:
    """Shift each row so that its first real token comes first."""
    first = [(int(q.int().argmax()), int(k.int().argmax())) for q, k in zip(queries, keys)]
    moved = [row.roll((-q, -k), (-2, -1)) for row, (q, k) in zip(weights, first)]
    return torch.stack(moved), torch.stack([row.roll(-q) for row, (q, _) in zip(queries, first)])


def induction_shares(weights: Weights, period: int) -> Float[Tensor, " head"]:
    """Compute the share of attention that a repeated token gives to the token after its own earlier
    occurrence, in a text that is `period` tokens long and then repeats itself (Olsson et al.
    2022)."""
    rows = torch.arange(period, weights.shape[-2])
    return weights[:, :, rows, rows - period + 1].mean(dim=(0, 2))
