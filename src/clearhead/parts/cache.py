"""A cache of keys and values, which are computed once and used again (the paper has no section on
this).

A model makes a cache (`new_cache`). The caller passes it to each call, and each call extends it.
Column c of a row holds the row's token at position c; padding is not kept. Rows of different
lengths can therefore stand side by side, and each row counts its own positions. Rows can leave and
join, and their last tokens can be forgotten."""

from typing import NamedTuple

import torch
import torch.nn.functional as F

from clearhead.parts import masks
from clearhead.parts.positions import check_length
from clearhead.shapes import Allowed, Bool, Float, Int, Positions, Tensor

SPARE = 16  # columns that are reserved beyond those in use


class KeysValues(NamedTuple):
    """The keys and values that an attention attends to, projected and split into heads."""

    keys: Float[Tensor, "batch kv_heads key d_head"]
    values: Float[Tensor, "batch kv_heads key d_head"]


class Cache:
    """The keys and values of all layers, and how many tokens each row has."""

    def __init__(
        self,
        layers: list[KeysValues],
        *,
        sources: list[KeysValues] | None = None,
        real_source: Bool[Tensor, "source_batch source"] | None = None,
    ) -> None:
        self.layers = layers
        self.sources = sources
        """The keys and values of cross-attention, by layer. They have one row for each row of the
        cache, or for each `rows_per_source` rows (the hypotheses of one beam)."""
        self.real_source = real_source
        self.rows_per_source = 1
        self.lengths = [0] * len(layers[0].keys)
        self.shown = 0
        """Number of columns that attention sees in the present call."""
        self.columns: Int[Tensor, "batch length"] | None = None
        """Columns into which the tokens of the present call go; None: all rows have the same next
        columns."""

    @property
    def length(self) -> int:
        """The length of the longest row."""
        return max(self.lengths, default=0)

    def extend(
        self, n_tokens: int, real: Bool[Tensor, "batch length"] | None, max_length: int
    ) -> Int[Tensor, "#batch length"]:
        """Reserve columns for the tokens of a call, and return their positions. Each row continues
        to count from its own last real token. If there are too many tokens, the cache stays as it
        was."""
        device = self.layers[0].keys.device
        shown = self.length + n_tokens
        if min(self.lengths, default=0) == self.length and (real is None or bool(real.all())):
            check_length(shown, max_length)
            self.shown, self.lengths, self.columns = shown, [shown] * len(self.lengths), None
            return torch.arange(shown - n_tokens, shown, device=device)[None]
        starts = torch.tensor(self.lengths, device=device)[:, None]
        if real is None:
            real = torch.ones(len(starts), n_tokens, dtype=torch.bool, device=device)
        counted = real.cumsum(dim=1)
        ends = starts + counted[:, -1:]
        check_length(int(ends.max()), max_length)
        positions = (starts + counted - 1).clamp(min=0)
        # Padding goes where the row's next token will overwrite it, and it is not read until then.
        self.columns = torch.where(real, positions, ends)
        self.shown, self.lengths = shown, ends[:, 0].tolist()
        return positions

    def allowed(self, positions: Positions) -> Allowed | None:
        """Return the mask for the tokens of the present call; None: causality alone decides."""
        return None if self.columns is None else masks.up_to(positions, self.shown)

    def key_positions(self) -> Int[Tensor, "1 key"]:
        """The positions of all cached keys."""
        return torch.arange(self.shown, device=self.layers[0].keys.device)[None]

    def reorder(self, rows: Int[Tensor, " new_batch"], rows_per_source: int = 1) -> None:
        """Make row i a copy of row rows[i]; the batch may shrink or grow. Each group of
        `rows_per_source` neighbouring rows looks at one source, that of its first row."""
        n_columns = self.length + SPARE  # further reserved columns need not be copied
        self.layers = [_rows_of(layer, rows, n_columns) for layer in self.layers]
        if self.sources is not None:
            chosen = rows[::rows_per_source] // self.rows_per_source
            n_sources = len(self.sources[0].keys)
            if chosen.tolist() != list(range(n_sources)):
                self.sources = [_rows_of(source, chosen) for source in self.sources]
                self.real_source = None if self.real_source is None else self.real_source[chosen]
        self.rows_per_source = rows_per_source
        self.lengths = [self.lengths[row] for row in rows.tolist()]

    def join(self, other: "Cache") -> None:
        """Append the rows of another cache of the same model."""
        capacity = max(self.length, other.length) + SPARE
        self.layers = _stacked(self.layers, other.layers, capacity)
        if self.sources is not None and other.sources is not None:
            widths = [cache.sources[0].keys.shape[2] for cache in (self, other) if cache.sources]
            real = [_real_source(cache, max(widths)) for cache in (self, other)]
            self.sources = _stacked(self.sources, other.sources, max(widths))
            all_real = widths[0] == widths[1] and self.real_source is other.real_source is None
            self.real_source = None if all_real else torch.cat(real)
        self.lengths = self.lengths + other.lengths

    def forget(self, counts: list[int]) -> None:
        """Remove the last tokens of each row: as many as `counts` says for the row."""
        self.lengths = [length - n for length, n in zip(self.lengths, counts, strict=True)]


class LayerCache(NamedTuple):
    """One layer's part of a cache."""

    cache: Cache
    layer: int

    @property
    def source(self) -> KeysValues:
        """Keys and values of the source, for cross-attention."""
        assert self.cache.sources is not None
        return self.cache.sources[self.layer]

    def append(self, new: KeysValues) -> KeysValues:
        """Append the keys and values of this call's tokens to the old ones; return all of them."""
        cache, n_tokens = self.cache, new.keys.shape[2]
        own = cache.layers[self.layer]
        if cache.shown > own.keys.shape[2]:
            # The cache grows by a half each time, so that in the long run each column is copied
            # twice.
            capacity = cache.shown + max(SPARE, cache.shown // 2)
            own = cache.layers[self.layer] = _with_columns(own, capacity)
        for mine, theirs in zip(own, new):
            if cache.columns is None:
                mine[:, :, cache.shown - n_tokens : cache.shown] = theirs
            else:
                row = torch.arange(len(mine), device=mine.device)[:, None]
                mine.transpose(1, 2)[row, cache.columns] = theirs.transpose(1, 2).to(mine.dtype)
        return KeysValues(*(t[:, :, : cache.shown] for t in own))


def _with_columns(of: KeysValues, n: int) -> KeysValues:
    """Cut a tensor to the number of columns, or fill it up with zeros: values that are never
    attended to must still be numbers."""
    return KeysValues(*(F.pad(t, (0, 0, 0, n - t.shape[2])) for t in of))


def _rows_of(of: KeysValues, rows: Tensor, n_columns: int | None = None) -> KeysValues:
    return KeysValues(*(t[:, :, :n_columns].index_select(0, rows) for t in of))


def _stacked(first: list[KeysValues], second: list[KeysValues], n_columns: int) -> list[KeysValues]:
    return [
        KeysValues(*map(torch.cat, zip(*(_with_columns(layer, n_columns) for layer in pair))))
        for pair in zip(first, second)
    ]


def _real_source(cache: Cache, n: int) -> Bool[Tensor, "source_batch source"]:
    assert cache.sources is not None
    n_rows, _, n_columns, _ = cache.sources[0].keys.shape
    real = cache.real_source
    if real is None:
        real = torch.ones(n_rows, n_columns, dtype=torch.bool, device=cache.layers[0].keys.device)
    return F.pad(real, (0, n - n_columns))
