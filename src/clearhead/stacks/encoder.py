"""The encoder stack of Figure 1."""

from collections.abc import Sequence

from torch import nn

from clearhead.parts import masks
from clearhead.parts.attention import MultiHeadAttention
from clearhead.parts.later.alibi import AlibiPositions
from clearhead.parts.later.rotary import RotaryPositions
from clearhead.parts.recorder import Record, Recorder, record_as
from clearhead.parts.residual import Residual
from clearhead.parts.view import View, view_of_itself
from clearhead.shapes import Positions, Real, Stream


class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward network, each with its residual connection."""

    def __init__(
        self,
        *,
        self_attention: MultiHeadAttention,
        feed_forward: nn.Module,
        residuals: tuple[Residual, Residual],
    ) -> None:
        super().__init__()
        self.self_attention = self_attention
        self.feed_forward = feed_forward
        self.around_self_attention, self.around_feed_forward = residuals

    def forward(self, x: Stream, view: View, record: Record | None = None) -> Stream:
        """`Residual` passes norm(x) to a sublayer, or x itself with post-norm."""

        def attend_to_itself(x: Stream) -> Stream:
            seen = self.self_attention.keys_values_of(x, view.rotation)
            return self.self_attention(x, seen, view, record_as("self", record))

        x = self.around_self_attention(x, attend_to_itself)
        return self.around_feed_forward(x, self.feed_forward)


class Stack(nn.Module):
    """The layers of a stack, the final norm that pre-norm layers need, and the positions that all
    layers use."""

    def __init__(
        self,
        layers: Sequence[nn.Module],
        *,
        norm: nn.Module | None,
        rotary: RotaryPositions | None = None,
        alibi: AlibiPositions | None = None,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm
        self.rotary = rotary
        self.alibi = alibi


class Encoder(Stack):
    """A stack of encoder layers, in which each position sees all others."""

    def forward(
        self, x: Stream, positions: Positions, real: Real | None, recorder: Recorder | None = None
    ) -> Stream:
        allowed = masks.real_keys(real)
        view = view_of_itself(positions, allowed, rotary=self.rotary, alibi=self.alibi)
        for index, layer in enumerate(self.layers):
            x = layer(x, view, None if recorder is None else recorder.at(index))
        return x if self.norm is None else self.norm(x)
