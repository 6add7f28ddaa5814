"""Records attention weights: a recorder that is passed to a model's call keeps those of the chosen
layers."""

from collections.abc import Callable, Collection
from functools import partial
from typing import Literal

from clearhead.shapes import Weights

AttentionRole = Literal["self", "causal", "cross"]
Record = Callable[[AttentionRole, Weights], None]


def record_as(role: AttentionRole, record: Record | None) -> Callable[[Weights], None] | None:
    """Return the function that an attention of this role calls with its weights."""
    return None if record is None else partial(record, role)


class Recorder:
    """Attention weights by role and layer, before dropout. Rows sum to 1, or to 0 if everything is
    masked.

        recorder = Recorder(layers=[0, 5])
        model(source, target, recorder=recorder)
        recorder["cross", 5]   # (batch, heads, query, key)

    The weights are computed separately from the model's own path: recording changes no bit of the
    logits. With a cache, each call adds the rows of its own queries (see `steps`)."""

    def __init__(self, layers: Collection[int] | None = None) -> None:
        self.layers = layers
        self.steps: dict[tuple[AttentionRole, int], list[Weights]] = {}

    def at(self, layer: int) -> Record | None:
        """Return the function that the layer calls with its weights; None if this layer was not
        chosen."""
        if self.layers is not None and layer not in self.layers:
            return None

        def record(role: AttentionRole, weights: Weights) -> None:
            self.steps.setdefault((role, layer), []).append(weights.detach())

        return record

    def __getitem__(self, key: tuple[AttentionRole, int]) -> Weights:
        """Return the weights of the latest call."""
        if key not in self.steps:
            recorded = ", ".join(f"{role} {layer}" for role, layer in self.steps) or "nothing yet"
            raise KeyError(f"no weights of {key[0]} attention in layer {key[1]}: {recorded}")
        return self.steps[key][-1]
