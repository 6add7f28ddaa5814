"""The decoder stack of Figure 1. Without cross-attention, it is the stack of a GPT."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import nn

from clearhead.parts import masks
from clearhead.parts.attention import MultiHeadAttention
from clearhead.parts.cache import Cache, KeysValues, LayerCache
from clearhead.parts.recorder import Record, Recorder, record_as
from clearhead.parts.residual import Residual
from clearhead.parts.view import View, view_of_itself
from clearhead.shapes import Allowed, Bool, Float, Positions, Real, Stream, Tensor
from clearhead.stacks.encoder import Stack


class Memory(NamedTuple):
    """The encoder's output, and which of its positions are real (None: all)."""

    states: Float[Tensor, "batch source d_model"]
    real: Bool[Tensor, "batch source"] | None


class DecoderLayer(nn.Module):
    """Causal self-attention, then cross-attention to the encoder's output (if there is an encoder),
    then a feed-forward network, each with its residual connection."""

    def __init__(
        self,
        *,
        self_attention: MultiHeadAttention,
        cross_attention: MultiHeadAttention | None,
        feed_forward: nn.Module,
        residuals: Sequence[Residual],
    ) -> None:
        super().__init__()
        self.self_attention = self_attention
        self.around_self_attention = residuals[0]
        self.cross_attention = cross_attention
        if cross_attention is not None:
            self.around_cross_attention = residuals[1]
        self.feed_forward = feed_forward
        self.around_feed_forward = residuals[-1]

    def forward(
        self,
        x: Stream,
        view: View,
        source: Float[Tensor, "batch source d_model"] | None = None,
        source_view: View | None = None,
        cache: LayerCache | None = None,
        record: Record | None = None,
    ) -> Stream:
        """`Residual` passes norm(x) to a sublayer, or x itself with post-norm. If there is a cache,
        it already holds the projected source."""

        def attend_to_the_past(x: Stream) -> Stream:
            seen = self.self_attention.keys_values_of(x, view.rotation)
            seen = seen if cache is None else cache.append(seen)
            return self.self_attention(x, seen, view, record_as("causal", record))

        def attend_to_the_source(x: Stream) -> Stream:
            cross = self.cross_attention
            assert cross is not None
            if cache is not None:
                seen = cache.source
            else:
                assert source is not None
                seen = cross.keys_values_of(source)
            # The hypotheses of a beam, which come with a cache, look at one source: their queries
            # stand side by side in one row.
            beam = cache is not None and cache.cache.rows_per_source > 1
            queries = x.reshape(len(seen.keys), -1, x.shape[2]) if beam else x
            out = cross(queries, seen, source_view, record_as("cross", record))
            return out.view_as(x)

        x = self.around_self_attention(x, attend_to_the_past)
        if self.cross_attention is not None:
            x = self.around_cross_attention(x, attend_to_the_source)
        return self.around_feed_forward(x, self.feed_forward)


class Decoder(Stack):
    """A stack of decoder layers, in which no position sees a later one."""

    def forward(
        self,
        x: Stream,
        positions: Positions,
        real: Real | None,
        *,
        memory: Memory | None = None,
        documents: Allowed | None = None,
        cache: Cache | None = None,
        recorder: Recorder | None = None,
    ) -> Stream:
        """If there is a cache, x is only the new tokens, and the cache already counts them."""
        if cache is None:
            allowed = masks.both(masks.real_keys(real), documents)
            real_source = None if memory is None else memory.real
        else:
            allowed = cache.allowed(positions)
            real_source = cache.real_source
        view = view_of_itself(
            positions,
            allowed,
            rotary=self.rotary,
            alibi=self.alibi,
            key_positions=None if cache is None else cache.key_positions(),
        )
        for index, layer in enumerate(self.layers):
            x = layer(
                x,
                view,
                source=None if memory is None else memory.states,
                source_view=View(masks.real_keys(real_source)),
                cache=None if cache is None else LayerCache(cache, index),
                record=None if recorder is None else recorder.at(index),
            )
        return x if self.norm is None else self.norm(x)

    def new_cache(
        self, batch_size: int, capacity: int, like: Tensor, memory: Memory | None = None
    ) -> Cache:
        """Return an empty cache on the device and in the dtype of `like`. The source's keys and
        values are computed here, once."""
        layers: list[KeysValues] = []
        sources: list[KeysValues] = []
        for layer in self.layers:
            assert isinstance(layer, DecoderLayer)
            attention, cross = layer.self_attention, layer.cross_attention
            shape = (batch_size, attention.n_kv_heads, capacity, attention.d_head)
            layers.append(KeysValues(like.new_zeros(shape), like.new_zeros(shape)))
            if cross is not None and memory is not None:
                sources.append(cross.keys_values_of(memory.states))
        real = None if memory is None else memory.real
        return Cache(layers, sources=sources or None, real_source=real)
