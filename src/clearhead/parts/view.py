"""What the attentions of a stack may attend to. It is computed once and is the same for all
layers."""

from collections.abc import Callable
from typing import NamedTuple

from clearhead.parts.positions import Rotation
from clearhead.shapes import Allowed, Bias, Int, Positions, Tensor


class View(NamedTuple):
    """Mask, bias and rotation that all layers of a stack share."""

    allowed: Allowed | None = None
    """Which keys may be attended to, apart from causality; None: all."""
    bias: Bias | None = None
    """ALiBi's penalty for distance."""
    rotation: Rotation | None = None
    """The rotation of queries and keys."""


def view_of_itself(
    positions: Positions,
    allowed: Allowed | None,
    *,
    rotary: Callable[[Positions], Rotation] | None,
    alibi: Callable[[Positions, Positions], Bias] | None,
    key_positions: Int[Tensor, "#batch key"] | None = None,
) -> View:
    """Return the view that a sequence has of itself. `rotary` and `alibi` are parts from
    `parts/later`. With a cache, there are more keys than new tokens, and `key_positions` are the
    positions of all keys. Without a cache, keys and queries are the same tokens."""
    keys = positions if key_positions is None else key_positions
    return View(
        allowed=allowed,
        bias=None if alibi is None else alibi(positions, keys),
        rotation=None if rotary is None else rotary(positions),
    )
