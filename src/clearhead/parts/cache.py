"""Keys and values that have been computed once and are looked at again (no section: the paper
decodes, but does not say how).

A cache is made by a model (`new_cache`), passed to its calls, and grows with each of them. Its
memory is reserved in advance; `reorder` makes row i continue what row rows[i] had.
"""

from typing import NamedTuple

import torch

from clearhead.errors import InputError
from clearhead.shapes import Bool, Float, Int, Positions, Tensor


class KeysValues(NamedTuple):
    """What an attention looks at, projected and split into heads."""

    keys: Float[Tensor, "batch kv_heads key d_head"]
    values: Float[Tensor, "batch kv_heads key d_head"]


class LayerCache:
    """One layer's own keys and values, and the source's if the layer looks at one."""

    def __init__(self, room: KeysValues, source: KeysValues | None = None) -> None:
        self.room = room
        self.length = 0
        self.source = source

    def append(self, new: KeysValues) -> KeysValues:
        """Put new keys and values behind the old ones; return all of them."""
        start, self.length = self.length, self.length + new.keys.shape[2]
        self.room.keys[:, :, start : self.length] = new.keys
        self.room.values[:, :, start : self.length] = new.values
        return KeysValues(*(t[:, :, : self.length] for t in self.room))

    def reorder(self, rows: Int[Tensor, " new_batch"]) -> None:
        self.room = KeysValues(*(t.index_select(0, rows) for t in self.room))
        if self.source is not None:
            self.source = KeysValues(*(t.index_select(0, rows) for t in self.source))


class Cache:
    """All layers' caches, and which of the tokens behind them are real and where they stand."""

    def __init__(
        self,
        layers: list[LayerCache],
        batch_size: int,
        capacity: int,
        *,
        real_source: Bool[Tensor, "batch source"] | None = None,
    ) -> None:
        device = layers[0].room.keys.device
        self.layers = layers
        self.capacity = capacity
        self.length = 0
        self.real_source = real_source
        self._real = torch.zeros(batch_size, capacity, dtype=torch.bool, device=device)
        self._positions = torch.zeros(batch_size, capacity, dtype=torch.long, device=device)
        self._next_position = torch.zeros(batch_size, 1, dtype=torch.long, device=device)
        self._masked = False

    def extend(
        self, n_tokens: int, real: Bool[Tensor, "batch length"] | None
    ) -> Int[Tensor, "batch length"]:
        """Make room for new tokens, and return their positions: each sequence goes on counting
        where its own last real token stood."""
        end = self.length + n_tokens
        if end > self.capacity:
            raise InputError(
                f"the cache holds {self.capacity} tokens and {end} were asked for; "
                f"make it with new_cache(capacity={end}) or larger"
            )
        self._real[:, self.length : end] = True if real is None else real
        self._masked = self._masked or real is not None
        counted = self._real[:, self.length : end].cumsum(dim=1)
        positions = (self._next_position + counted - 1).clamp(min=0)
        self._next_position = self._next_position + counted[:, -1:]
        self._positions[:, self.length : end] = positions
        self.length = end
        return positions

    @property
    def real(self) -> Bool[Tensor, "batch key"] | None:
        """Which keys are real; None while no call has brought a mask."""
        return self._real[:, : self.length] if self._masked else None

    @property
    def positions(self) -> Positions:
        """Where the keys stand."""
        return self._positions[:, : self.length]

    def reorder(self, rows: Int[Tensor, " new_batch"]) -> None:
        """Row i becomes a copy of row rows[i]; the batch may shrink or grow."""
        for layer in self.layers:
            layer.reorder(rows)
        self._real = self._real.index_select(0, rows)
        self._positions = self._positions.index_select(0, rows)
        self._next_position = self._next_position.index_select(0, rows)
        if self.real_source is not None:
            self.real_source = self.real_source.index_select(0, rows)
