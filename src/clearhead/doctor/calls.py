"""What a model is called with, and how: inputs, generation, logits, loss and cache."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class CallInputs:
    """The inputs of a model. A mask is True at real tokens; None means that no mask is passed."""

    tokens: Tensor
    """(batch, length): the tokens of the target, if there is a source."""
    source: Tensor | None = None
    """(batch, source length)"""
    real: Tensor | None = None
    source_real: Tensor | None = None

    def rows(self, index: slice | list[int]) -> "CallInputs":
        """Return the same inputs with only these rows."""

        def pick(t: Tensor | None) -> Tensor | None:
            return None if t is None else t[index]

        return CallInputs(
            self.tokens[index], pick(self.source), pick(self.real), pick(self.source_real)
        )


def in_pieces(
    call: Callable[[nn.Module, CallInputs], Tensor],
    model: nn.Module,
    inputs: CallInputs,
    max_rows: int | None,
    exactly: bool = False,
) -> Tensor:
    """Call the model for all rows, in pieces of at most `max_rows`, or of exactly that many with
    `exactly` (the last rows are then repeated)."""
    n_rows = len(inputs.tokens)
    if max_rows is None or (n_rows <= max_rows and not exactly):
        return call(model, inputs)
    pieces = [list(range(n, min(n + max_rows, n_rows))) for n in range(0, n_rows, max_rows)]
    if exactly:
        pieces = [piece + piece[-1:] * (max_rows - len(piece)) for piece in pieces]
    return torch.cat([call(model, inputs.rows(piece)) for piece in pieces])[:n_rows]


class Generated(NamedTuple):
    """What a model's own generation returned."""

    prefix: Tensor
    """(batch, prefix): the tokens with which the decoder started: the prompt, or an
    encoder-decoder's first token."""
    tokens: Tensor
    """(batch, new): the tokens that were generated after the prefix."""
    scores: Tensor | None = None
    """The log-probabilities that the model reports for these tokens, if it does."""


class Generate(Protocol):
    """How to call the model's own generation."""

    def __call__(
        self, model: nn.Module, inputs: CallInputs, n_new: int, /, **settings: Any
    ) -> Generated: ...


@dataclass(frozen=True)
class Calls:
    """How to call a model: each entry takes the model as an argument, because the doctor examines
    copies of the model.

    Only `logits` is needed. An entry that is None does not exist, and its checks do not apply.
    """

    logits: Callable[[nn.Module, CallInputs], Tensor]
    """(batch, length, vocab): scores before any softmax."""
    masks: frozenset[str] = frozenset()
    """The masks, "real" and "source_real", that reach the model."""
    unread_masks: Mapping[str, str] = field(default_factory=dict)
    """By "real" or "source_real": an argument that is named as a padding mask, but changes the
    logits of an unpadded batch, whatever True means."""
    inverted_masks: tuple[str, ...] = ()
    """Arguments called attention_mask that are true at padding, unlike what tokenizers return."""
    causal_mask: str | None = None
    """An argument without which the model leaks; `logits` passes a causal mask in it."""
    sides: frozenset[str] = frozenset({"left", "right"})
    """The sides on which padding can be put: lengths in place of masks allow only the right."""
    inner_length: int = 0
    """How many more tokens the decoder processes than it is given."""
    loss: Callable[[nn.Module, CallInputs, Tensor], Tensor] | None = None
    """The model's own loss, given a target per token, as its users would pass them."""
    loss_shift: int = 0
    """By how many positions the model itself shifts the targets: 1 if users pass the inputs as
    labels."""
    ignored: int = -100
    """The target that the loss ignores."""
    ignores: bool = True
    """True if the loss ignores a target; if not, `ignored` is a target like others."""
    labelled: Callable[[nn.Module, CallInputs, Tensor], Any] | None = None
    """A call with labels, even if they are what the decoder reads."""
    class_loss: Callable[[nn.Module, CallInputs, Tensor], Tensor] | None = None
    """The loss of a model that scores classes: one for each sequence if it is `pooled`, or one for
    each token."""
    from_labels: Callable[[nn.Module, CallInputs, Tensor], Tensor] | None = None
    """The logits of an encoder-decoder that is given only labels, and makes from them what its
    decoder reads."""
    fills: int | None = None
    """The mask token of a masked language model, which predicts tokens only in its place; a decoder
    of this kind may see everything."""
    own_loss: Callable[[nn.Module, CallInputs], Tensor] | None = None
    """The loss of a model that makes its own targets from its tokens."""
    packed: Callable[[nn.Module, CallInputs, list[int]], Tensor] | None = None
    """The logits of rows that hold several documents of these lengths."""
    accumulate: Callable[[nn.Module, list[tuple[CallInputs, Tensor]]], None] | None = None
    """Leaves in `.grad` the gradient of one step over several micro-batches."""
    cached: Callable[[nn.Module, CallInputs, list[int]], Tensor] | None = None
    """The same logits as `logits`, with the tokens fed through a cache in pieces of these
    lengths."""
    cache_takes_masks: bool = False
    """True if `cached` passes `inputs.real` on, so that a padded batch can be fed in pieces."""
    reordered: Callable[[nn.Module, CallInputs, list[int], list[int]], Tensor] | None = None
    """Like `cached`; before the last piece, row i of the cache becomes row rows[i]."""
    generate: Generate | None = None
    settings: frozenset[str] = frozenset()
    """The settings that `generate` takes: "temperature", "top_k", "eos", "beams"."""
    generate_mentions_end: bool = False
    """True if the code of `generate` names an end token."""
    generate_takes_masks: bool = False
    """True if `generate` passes `inputs.real` on, so that prompts can be padded on the left."""
    more_outputs: Callable[[nn.Module, CallInputs], list[Tensor]] | None = None
    """What the model returns besides the logits and also learns, such as the scores of another
    head."""
    attention: Callable[[nn.Module, CallInputs], list[Tensor]] | None = None
    """The attention weights that the model returns, (batch, heads, query, key) each."""
