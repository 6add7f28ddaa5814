"""Masks: which positions may attend to which. The models make all their masks here (sections 3.1
and 3.2.3).

A mask is a Bool called `allowed`: True means that the query may attend to the key. It broadcasts to
(batch, heads, query, key); masks combine with `&`; None means that everything is allowed. A query
that may attend to no key gets an output of zeros, on every path."""

import torch

from clearhead.shapes import Allowed, Bias, Bool, Int, Positions, Real, Tensor


def real_keys(real: Real | None) -> Allowed | None:
    """Every query may attend to every key that is not padding."""
    return None if real is None else real[:, None, None, :]


def causal(
    n_queries: int, n_keys: int, device: torch.device | None = None
) -> Bool[Tensor, "1 1 query key"]:
    """A query may attend to itself and to earlier keys.

    The mask is aligned to the bottom right: the last query belongs to the last key. With a cache
    there are fewer queries than keys, and the newest token still sees every key."""
    square = torch.ones(n_queries, n_keys, dtype=torch.bool, device=device)
    return square.tril(n_keys - n_queries)[None, None]


def up_to(positions: Positions, n_keys: int) -> Allowed:
    """The mask over a cache, whose column c holds the token at position c: a query may look at
    itself and at earlier tokens, however many columns other rows have."""
    columns = torch.arange(n_keys, device=positions.device)
    return (columns <= positions[:, :, None])[:, None]


def same_document(documents: Int[Tensor, "batch length"]) -> Allowed:
    """Documents packed into one sequence do not attend to each other."""
    return (documents[:, :, None] == documents[:, None, :])[:, None]


def both(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    """`one & other`, where None allows everything."""
    if one is None or other is None:
        return one if other is None else other
    return one & other


def as_bias(allowed: Allowed, dtype: torch.dtype) -> Bias:
    """0 where allowed, a large negative value elsewhere. It is added to the scores instead of
    filled in, because the gradient of a sum costs nothing. The value is finite, since a row of
    nothing but -inf would give NaN. It is half of the lowest number, so that adding a score cannot
    overflow."""
    bias = torch.zeros(allowed.shape, dtype=dtype, device=allowed.device)
    return bias.masked_fill_(~allowed, torch.finfo(dtype).min / 2)


def count_positions(real: Real) -> Positions:
    """Positions 0, 1, 2… counted from the first real token, wherever the padding is.

    Padding gets the position of the real token before it (or 0): a valid row of any table, whose
    content is never used."""
    return (real.cumsum(dim=1) - 1).clamp(min=0)


def count_document_positions(
    documents: Int[Tensor, "batch length"], real: Real | None
) -> Positions:
    """Positions that start again at 0 with each document of a packed sequence."""
    real = torch.ones_like(documents, dtype=torch.bool) if real is None else real
    counted = real.cumsum(dim=1)
    begins = torch.ones_like(real)
    begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
    before = torch.where(begins, counted - real.long(), 0).cummax(dim=1).values
    return (counted - 1 - before).clamp(min=0)
