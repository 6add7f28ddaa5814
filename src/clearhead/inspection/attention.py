"""Shows what a model attended to: the attention of one layer as a matrix with labels."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from clearhead.decoding import Output, attention_of
from clearhead.decoding.cached import evaluating
from clearhead.errors import ConfigError, InputError, ModelError, setting
from clearhead.inspection.page import in_frame
from clearhead.inspection.pictures import heatmap_svg, heatmap_text
from clearhead.inspection.sites import has_our_weights, no_weights
from clearhead.models import CausalLM, Classifier, MaskedLM, Seq2Seq
from clearhead.parts.recorder import Recorder
from clearhead.shapes import Float, Tensor
from clearhead.text.tokenizer import Tokenizer
from clearhead.text.visible import label_of


class AttentionMap(NamedTuple):
    """An attention map, with a row for each token that attends (in a translation, the generated
    tokens) and a column for each token attended to. A notebook shows all attentions as a page;
    `print` shows this map as text."""

    weights: Float[Tensor, "written source"]
    written: list[str]
    source: list[str]
    layer: int
    head: int | None = None
    """The number of the head; None: the mean of all heads."""
    kind: str = "cross-attention, decoder"
    html: Callable[[], str] | None = None
    """Makes the page of the run, with every layer and head."""

    @property
    def title(self) -> str:
        """The name of this attention."""
        heads = "mean of the heads" if self.head is None else f"head {self.head}"
        return f"{self.kind} layer {self.layer}, {heads}"

    def svg(self) -> str:
        """Return the attention as an SVG picture."""
        return heatmap_svg(self.weights, self.written, self.source, self.title)

    def _repr_html_(self) -> str:
        try:
            return self.svg() if self.html is None else in_frame(self.html())
        except InputError:  # the text is too long for a page of all heads
            return self.svg()

    def __str__(self) -> str:
        return heatmap_text(self.weights, self.written, self.source)


def cross_attention(
    model: Seq2Seq,
    source: Sequence[int],
    output: Output,
    *,
    tokenizers: tuple[Tokenizer, Tokenizer],
    start_id: int | None,
    layer: int | None = None,
    head: int | None = None,
) -> AttentionMap:
    """Return the cross-attention of a translation. `layer` counts the decoder's layers from 0;
    None: the last layer. `head` counts from 0; None: the mean of all heads."""
    layer = _chosen("layer", layer, model.config.decoder_layers)
    _check_weights(model.decoder.layers[layer].cross_attention)
    recorder = attention_of(model, source, output, start_id=start_id)
    return AttentionMap(
        weights=_of_heads(recorder["cross", layer][0], head),
        written=[label_of(token, tokenizers[1]) for token in output.tokens],
        source=[label_of(token, tokenizers[0]) for token in source],
        layer=layer,
        head=head,
    )


@torch.inference_mode()
def self_attention(
    model: CausalLM | MaskedLM | Classifier,
    ids: Sequence[int],
    *,
    tokenizer: Tokenizer,
    layer: int | None = None,
    head: int | None = None,
) -> AttentionMap:
    """Return the attention of a text to itself, in a decoder-only or encoder-only model."""
    layer = _chosen("layer", layer, model.config.decoder_layers)
    tower = model.decoder if isinstance(model, CausalLM) else model.encoder
    _check_weights(tower.layers[layer].self_attention)
    recorder = Recorder(layers=[layer])
    tokens = torch.tensor([list(ids)], device=model.tokens.weight.device)
    with evaluating(model.modules()):
        model(tokens, real="all", recorder=recorder)
    role = "causal" if isinstance(model, CausalLM) else "self"
    labels = [label_of(token, tokenizer) for token in ids]
    weights = _of_heads(recorder[role, layer][0], head)
    kind = f"self-attention, {model.config.family}"
    return AttentionMap(weights, labels, labels, layer, head, kind)


def _check_weights(attention: object) -> None:
    if not has_our_weights(attention):
        raise no_weights()


def _of_heads(weights: Float[Tensor, "heads query key"], head: int | None) -> Tensor:
    if not weights.isfinite().all():
        raise ModelError(
            "the model computes attention that is NaN or infinite; are its weights damaged?"
        )
    if head is None:
        return weights.mean(dim=0)
    _chosen("head", head, len(weights))
    return weights[head]


def _chosen(name: str, index: int | None, n: int) -> int:
    index = n - 1 if index is None else index
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < n:
        rule = f"is not one of this model's, which has 0 to {n - 1}"
        raise ConfigError(name, index, rule, f"try {setting(name, n - 1)}")
    return index
