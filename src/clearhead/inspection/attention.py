"""What a translation attended to: the cross-attention of one layer as a matrix with labels."""

from collections.abc import Sequence
from typing import NamedTuple

from clearhead.decoding import Output, attention_of
from clearhead.errors import ConfigError
from clearhead.models import Seq2Seq
from clearhead.shapes import Float, Tensor
from clearhead.text.tokenizer import Tokenizer


class AttentionMap(NamedTuple):
    """A row for each generated token, a column for each token of the source."""

    weights: Float[Tensor, "written source"]
    written: list[str]
    source: list[str]
    layer: int


def cross_attention(
    model: Seq2Seq,
    source: Sequence[int],
    output: Output,
    *,
    tokenizers: tuple[Tokenizer, Tokenizer],
    start_id: int | None,
    layer: int | None = None,
) -> AttentionMap:
    """The mean over the heads. `layer` is the decoder's, from 0; None: the last."""
    last = model.config.decoder_layers - 1
    layer = last if layer is None else layer
    if not 0 <= layer <= last:
        rule = f"is not a layer of this decoder, which has 0 to {last}"
        raise ConfigError("layer", layer, rule, f"try layer={last}")
    recorder = attention_of(model, source, output, start_id=start_id)
    return AttentionMap(
        weights=recorder["cross", layer][0].mean(dim=0),
        written=[token_label(token, tokenizers[1]) for token in output.tokens],
        source=[token_label(token, tokenizers[0]) for token in source],
        layer=layer,
    )


def token_label(token: int, tokenizer: Tokenizer) -> str:
    """A token in visible characters: spaces, line ends and parts of a character have signs."""
    text = tokenizer.decode([token], show_control=True)
    return text.replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥")
