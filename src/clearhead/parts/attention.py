"""Attention (section 3.2): the formula, torch's fused kernel, and multi-head attention."""

import math
from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import nn

from clearhead.parts import masks
from clearhead.parts.cache import KeysValues
from clearhead.parts.dropout import Dropout
from clearhead.parts.positions import Rotation, rotate
from clearhead.parts.view import View
from clearhead.shapes import Allowed, Bias, Float, Stream, Tensor, Weights

Heads = Float[Tensor, "batch heads query d_head"]


def attention_scores(
    queries: Heads, keys: Float[Tensor, "batch kv_heads key d_head"], *, bias: Bias | None = None
) -> Weights:
    """Compute Q·Kᵀ / √d_head and add ALiBi's bias, if there is one. No mask is applied yet."""
    keys = one_per_query_head(keys, queries)
    scores = (queries / math.sqrt(queries.shape[-1])) @ keys.transpose(-2, -1)
    # The scores are in fp32: in half precision, no mask value is both finite and clearly below
    # every score.
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if bias is not None:
        scores += bias
    return scores


def attention_weights(
    queries: Heads,
    keys: Float[Tensor, "batch kv_heads key d_head"],
    *,
    allowed: Allowed | None = None,
    causal: bool = False,
    bias: Bias | None = None,
) -> Weights:
    """softmax(Q·Kᵀ / √d_head), over the keys that each query may attend to (equation 1)."""
    scores = attention_scores(queries, keys, bias=bias)
    may_be_empty = allowed is not None  # causality alone leaves every query at least itself
    if causal:
        n_queries, n_keys = scores.shape[-2:]
        allowed = masks.both(allowed, masks.causal(n_queries, n_keys, scores.device))
    if allowed is not None:
        scores += masks.as_bias(allowed, scores.dtype)
    weights = scores.softmax(dim=-1).to(queries.dtype)
    if allowed is None or not may_be_empty:
        return weights
    return weights.masked_fill(~allowed.any(dim=-1, keepdim=True), 0.0)


def explicit_attention(
    queries: Heads,
    seen: KeysValues,
    *,
    allowed: Allowed | None = None,
    causal: bool = False,
    bias: Bias | None = None,
    dropout: Callable[[Tensor], Tensor] | None = None,
) -> Heads:
    """Compute softmax(Q·Kᵀ / √d_head)·V as the paper writes it. This function defines attention in
    this package."""
    weights = attention_weights(queries, seen.keys, allowed=allowed, causal=causal, bias=bias)
    if dropout is not None:
        weights = dropout(weights)
    return weights @ one_per_query_head(seen.values, queries)


def fused_attention(
    queries: Heads,
    seen: KeysValues,
    *,
    allowed: Allowed | None = None,
    causal: bool = False,
    bias: Bias | None = None,
    p_dropout: float = 0.0,
) -> Heads:
    """Compute the same with torch's kernel, which never holds the whole matrix of weights."""
    n_queries, n_keys = queries.shape[2], seen.keys.shape[2]
    is_causal = causal and allowed is None and bias is None
    if is_causal and n_queries != n_keys:  # the kernel's own aligns to the top left
        is_causal = False  # by an `if`, as enable_gqa: only so torch.compile knows a bool
    if causal and not is_causal and n_queries > 1:
        allowed = masks.both(allowed, masks.causal(n_queries, n_keys, queries.device))
    if bias is not None:
        allowed = bias if allowed is None else bias.masked_fill(~allowed, -torch.inf)
    return F.scaled_dot_product_attention(
        queries,
        *seen,
        attn_mask=allowed,
        dropout_p=p_dropout,
        is_causal=is_causal,
        enable_gqa=True if seen.keys.shape[1] != queries.shape[1] else False,  # noqa: SIM210
    )


class MultiHeadAttention(nn.Module):
    """Multi-head attention (section 3.2.2): n_heads attentions in parallel, with one matrix for all
    heads in each role.

    With `n_kv_heads` below `n_heads`, groups of query heads share keys and values. `causal` is
    decided when the layer is built, so that no caller can forget it."""

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        n_kv_heads: int,
        d_head: int,
        causal: bool,
        bias: bool,
        p_dropout: float = 0.0,
        kind: Literal["fused", "explicit"] = "fused",
    ) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.n_kv_heads = n_kv_heads
        self.d_head = d_head
        self.causal = causal
        self.kind = kind
        self.query = nn.Linear(d_model, n_heads * d_head, bias=bias)
        self.key = nn.Linear(d_model, n_kv_heads * d_head, bias=bias)
        self.value = nn.Linear(d_model, n_kv_heads * d_head, bias=bias)
        self.output = nn.Linear(n_heads * d_head, d_model, bias=bias)
        self.dropout = Dropout(p_dropout)

    def keys_values_of(self, x: Stream, rotation: Rotation | None = None) -> KeysValues:
        """Compute K = x·Wᴷ and V = x·Wⱽ, at which queries of this or another sequence look in
        `forward`."""
        keys = split_heads(self.key(x), self.n_kv_heads)
        values = split_heads(self.value(x), self.n_kv_heads)
        return KeysValues(keys if rotation is None else rotate(keys, rotation), values)

    def forward(
        self,
        x: Float[Tensor, "batch query d_model"],
        seen: KeysValues,
        view: View,
        record: Callable[[Weights], None] | None = None,
    ) -> Float[Tensor, "batch query d_model"]:
        """Let x attend to the keys and values that `keys_values_of` returned."""
        queries = self.queries_of(x, view.rotation)
        if record is not None:
            record(self.weights_of(queries, seen, view))
        return self.output(merge_heads(self.attend(queries, seen, view)))

    def queries_of(self, x: Stream, rotation: Rotation | None = None) -> Heads:
        """Compute the queries of x, split into heads and rotated."""
        queries = split_heads(self.query(x), self.n_heads)
        return queries if rotation is None else rotate(queries, rotation)

    def weights_of(self, queries: Heads, seen: KeysValues, view: View) -> Weights:
        """Return how much each query attends to each key, before dropout."""
        return attention_weights(
            queries, seen.keys, allowed=view.allowed, causal=self.causal, bias=view.bias
        )

    def attend(self, queries: Heads, seen: KeysValues, view: View) -> Heads:
        """Compute each head's weighted sum of the values, before the output matrix."""
        mask = {"allowed": view.allowed, "causal": self.causal, "bias": view.bias}
        p_dropout = self.dropout.p if self.training else 0.0
        # On the CPU, torch's kernel has no dropout, and what torch does instead is slow.
        if self.kind == "explicit" or (p_dropout > 0 and queries.device.type == "cpu"):
            return explicit_attention(queries, seen, **mask, dropout=self.dropout)
        return fused_attention(queries, seen, **mask, p_dropout=p_dropout)

    def extra_repr(self) -> str:
        return f"n_heads={self.n_heads}, n_kv_heads={self.n_kv_heads}, causal={self.causal}"


def split_heads(
    x: Float[Tensor, "batch length width"], n_heads: int
) -> Float[Tensor, "batch {n_heads} length d_head"]:
    """(batch, length, heads · d_head) → (batch, heads, length, d_head)"""
    return x.unflatten(2, (n_heads, -1)).transpose(1, 2)


def merge_heads(
    x: Float[Tensor, "batch heads length d_head"],
) -> Float[Tensor, "batch length width"]:
    """(batch, heads, length, d_head) → (batch, length, heads · d_head)"""
    return x.transpose(1, 2).flatten(2)


def one_per_query_head(
    x: Float[Tensor, "batch kv_heads key d_head"], queries: Heads
) -> Float[Tensor, "batch heads key d_head"]:
    """Repeats keys or values so that each query head has its own (grouped-query attention)."""
    group = queries.shape[1] // x.shape[1]
    return x if group == 1 else x.repeat_interleave(group, dim=1)
