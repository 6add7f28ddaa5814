"""Writes a stack of layers, and what makes logits from its stream, as nodes of a graph."""

from collections.abc import Callable
from typing import Any, NamedTuple

from clearhead.config import ModelConfig
from clearhead.interop.onnx import layers
from clearhead.interop.onnx.graph import Graph, Value
from clearhead.interop.onnx.layers import UNWATCHED, KeysValuesNodes, ValueWatch, ViewNodes
from clearhead.models import CausalLM, Classifier, MaskedLM, Model, Seq2Seq
from clearhead.parts.embeddings import ClassificationHead, MaskedLMHead
from clearhead.stacks.decoder import DecoderLayer
from clearhead.stacks.encoder import EncoderLayer, Stack


class SourceNodes(NamedTuple):
    """What the cross-attention of each layer of a decoder attends to."""

    seen: list[KeysValuesNodes]
    view: ViewNodes


Extend = Callable[[int, KeysValuesNodes], KeysValuesNodes]
"""Appends the new keys and values of a layer to those of earlier calls."""


def through_layers(
    graph: Graph,
    x: Value,
    stack: Stack,
    config: ModelConfig,
    view: ViewNodes,
    *,
    source: SourceNodes | None = None,
    extend: Extend = lambda _, new: new,
    watch: ValueWatch = UNWATCHED,
) -> Value:
    """Apply all layers of an encoder or a decoder, without the final norm."""
    for index, layer in enumerate(stack.layers):
        assert isinstance(layer, EncoderLayer | DecoderLayer)

        def attend(x: Value, index: int = index, part: Any = layer.self_attention) -> Value:
            seen = extend(index, layers.keys_values_of(graph, x, part, view.rotation))
            return layers.attention(graph, x, seen, part, view, watch)

        def attend_to_the_source(x: Value, index: int = index, layer: Any = layer) -> Value:
            assert source is not None
            return layers.attention(
                graph, x, source.seen[index], layer.cross_attention, source.view, watch
            )

        def network(x: Value, part: Any = layer.feed_forward) -> Value:
            return layers.feed_forward(graph, x, part, config)

        x = layers.around(graph, x, layer.around_self_attention, attend, watch)
        if isinstance(layer, DecoderLayer) and layer.cross_attention is not None:
            x = layers.around(graph, x, layer.around_cross_attention, attend_to_the_source, watch)
        x = layers.around(graph, x, layer.around_feed_forward, network, watch)
    return x


def scores(graph: Graph, x: Value, model: Model) -> Value:
    """Return the logits of the stream after the last layer: scores of tokens or, for a classifier,
    of labels."""
    match model:
        case Seq2Seq():
            x = layers.norm(graph, x, model.decoder.norm)
            return layers.logits(graph, x, model.output, model.target_table)
        case CausalLM():
            x = layers.norm(graph, x, model.decoder.norm)
            return layers.logits(graph, x, model.output, model.tokens)
        case MaskedLM(head=MaskedLMHead() as head):
            x = layers.norm(graph, x, model.encoder.norm)
            x = layers.activation(graph, layers.linear(graph, x, head.dense), model.config)
            x = layers.norm(graph, x, head.norm)
            return layers.logits(graph, x, model.output, model.tokens)
        case Classifier(head=ClassificationHead() as head):
            x = layers.norm(graph, x, model.encoder.norm)
            vector = graph.op("Tanh", layers.linear(graph, x, head.dense))
            return layers.linear(graph, vector, head.output)
    raise AssertionError(type(model))
