"""The graphs of the three families, with the names of inputs and outputs that transformers.js and
optimum use.

A graph of a decoder takes any past, an empty one too: there is one file, and no branch in it.
Whatever the past does not contain yet is computed and appended, for the target as well as for the
source."""

import numpy as np

from clearhead.interop.onnx import layers, stacks
from clearhead.interop.onnx.graph import AxisSizes, Graph, Value
from clearhead.interop.onnx.layers import KeysValuesNodes
from clearhead.interop.onnx.precision import Precision
from clearhead.interop.onnx.stacks import SourceNodes
from clearhead.models import CausalLM, Classifier, MaskedLM, Model, Seq2Seq
from clearhead.stacks.decoder import Decoder, DecoderLayer
from clearhead.stacks.encoder import Encoder

BATCH = "batch_size"
"""transformers.js makes an empty past from this name; all other lengths of a past become 0."""
ENCODER, DECODER, WHOLE = "encoder_model", "decoder_model_merged", "model"


def graphs(model: Model, precision: Precision) -> dict[str, Graph]:
    """Return the graphs, by the names of the files that they become."""
    match model:
        case Seq2Seq():
            return {
                ENCODER: _encoder_of(model, Graph(model, precision)),
                DECODER: _decoder_of(model, Graph(model, precision)),
            }
        case CausalLM():
            return {WHOLE: _causal(model, Graph(model, precision))}
        case MaskedLM() | Classifier():
            return {WHOLE: _encoder_alone(model, Graph(model, precision))}


def _encoder_of(model: Seq2Seq, graph: Graph) -> Graph:
    length = "source_length"
    tokens, real = _tokens_and_mask(graph, length)
    x, _ = _encoded(graph, model, tokens, real)
    x = layers.norm(graph, x, model.encoder.norm)
    graph.output("last_hidden_state", x, (BATCH, length, model.config.d_model))
    return graph


def _encoder_alone(model: MaskedLM | Classifier, graph: Graph) -> Graph:
    config, length = model.config, "length"
    tokens, real = _tokens_and_mask(graph, length)
    segments = graph.input("token_type_ids", (BATCH, length)) if config.n_segments else None
    x, mask = _encoded(graph, model, tokens, real, segments)
    if isinstance(model, Classifier):
        first = graph.op("ArgMax", mask, axis=1, keepdims=1)
        scores = stacks.scores(graph, _rows(graph, x, first), model)
        graph.output("logits", scores, (BATCH, len(config.labels)))
        return graph
    graph.output(
        "logits", stacks.scores(graph, x, model), (BATCH, length, config.output_vocab_size)
    )
    return graph


def _rows(graph: Graph, x: Value, index: Value) -> Value:
    """Return one vector of each sequence."""
    return graph.op("GatherND", x, index, batch_dims=1)


def _encoded(
    graph: Graph,
    model: Seq2Seq | MaskedLM | Classifier,
    tokens: Value,
    real: Value,
    segments: Value | None = None,
) -> tuple[Value, Value]:
    """Return the stream after the last layer, and the mask as numbers."""
    stack, mask = model.encoder, layers.as_float(graph, real)
    assert isinstance(stack, Encoder)
    positions = _count_positions(graph, mask)
    x = layers.embed(graph, tokens, model.tokens, model.embedding, positions, mask, segments)
    view = layers.view(
        graph,
        allowed=graph.unsqueeze(real, 1, 2),
        may_be_empty=True,
        stack=stack,
        positions=positions,
        key_positions=positions,
    )
    return stacks.through_layers(graph, x, stack, model.config, view), mask


def _decoder_of(model: Seq2Seq, graph: Graph) -> Graph:
    config = model.config
    source_real = _mask(graph, "encoder_attention_mask", "source_length")
    tokens = graph.input("input_ids", (BATCH, "length"))
    states = graph.input(
        "encoder_hidden_states", (BATCH, "source_length", config.d_model), of=np.float32
    )
    past = _Past(graph, model.decoder, "decoder.", "past_length")
    past_source = _Past(graph, model.decoder, "encoder.", "past_source_length")
    # Nothing, once the past holds the whole source.
    states = graph.slice(states, 1, past_source.length())
    queries, keys, allowed = _causal_mask(graph, tokens, past)
    positions, key_positions = graph.unsqueeze(queries, 0), graph.unsqueeze(keys, 0)
    x = layers.embed(
        graph, tokens, model.target_table, model.target_embedding, positions, real=None
    )
    view = layers.view(
        graph,
        allowed=graph.unsqueeze(allowed, 0, 1),
        may_be_empty=False,
        stack=model.decoder,
        positions=positions,
        key_positions=key_positions,
    )
    source_view = layers.view(graph, allowed=graph.unsqueeze(source_real, 1, 2), may_be_empty=True)
    source = SourceNodes(_seen_source(graph, model, states, past_source), source_view)
    x = stacks.through_layers(
        graph, x, model.decoder, config, view, source=source, extend=past.extend
    )
    scores = stacks.scores(graph, x, model)
    graph.output("logits", scores, (BATCH, "length", config.output_vocab_size))
    past.give("present_length")
    past_source.give("source_length")
    return graph


def _causal(model: CausalLM, graph: Graph) -> Graph:
    tokens = graph.input("input_ids", (BATCH, "length"))
    real = _mask(graph, "attention_mask", "present_length")
    past = _Past(graph, model.decoder, "", "past_length")
    mask = layers.as_float(graph, real)
    key_positions = _count_positions(graph, mask)
    positions = graph.slice(key_positions, 1, past.length())
    _, _, causal = _causal_mask(graph, tokens, past)
    allowed = graph.op("And", graph.unsqueeze(real, 1, 2), graph.unsqueeze(causal, 0, 1))
    new = graph.slice(mask, 1, past.length())
    x = layers.embed(graph, tokens, model.tokens, model.embedding, positions, new)
    view = layers.view(
        graph,
        allowed=allowed,
        may_be_empty=True,
        stack=model.decoder,
        positions=positions,
        key_positions=key_positions,
    )
    x = stacks.through_layers(graph, x, model.decoder, model.config, view, extend=past.extend)
    scores = stacks.scores(graph, x, model)
    graph.output("logits", scores, (BATCH, "length", model.config.output_vocab_size))
    past.give("present_length")
    return graph


def _seen_source(
    graph: Graph, model: Seq2Seq, states: Value, past: "_Past"
) -> list[KeysValuesNodes]:
    """Return, for each layer, the keys and values of the past and of the states that the past does
    not contain."""
    seen: list[KeysValuesNodes] = []
    for index, layer in enumerate(model.decoder.layers):
        assert isinstance(layer, DecoderLayer) and layer.cross_attention is not None
        seen.append(past.extend(index, layers.keys_values_of(graph, states, layer.cross_attention)))
    return seen


class _Past:
    """The keys and values of earlier calls: the graph takes, extends and returns them."""

    def __init__(self, graph: Graph, stack: Decoder, kind: str, length: str) -> None:
        self._graph = graph
        self._kind = kind
        self._shapes: list[tuple[int, int]] = []
        self._layers: list[KeysValuesNodes] = []
        for index, layer in enumerate(stack.layers):
            assert isinstance(layer, DecoderLayer)
            part = layer.self_attention
            self._shapes.append((part.n_kv_heads, part.d_head))
            shape: AxisSizes = (BATCH, part.n_kv_heads, length, part.d_head)
            names = (f"past_key_values.{index}.{kind}{role}" for role in ("key", "value"))
            past = (graph.input(name, shape, of=np.float32) for name in names)
            self._layers.append(KeysValuesNodes(*past))
        self._first = self._layers[0].keys

    def length(self) -> Value:
        """Return the length of the given past, as a list of one number."""
        return self._graph.op("Shape", self._first, start=2, end=3)

    def extend(self, index: int, new: KeysValuesNodes) -> KeysValuesNodes:
        """Append a layer's new keys and values to the old ones, and return all of them."""
        pairs = zip(self._layers[index], new)
        self._layers[index] = KeysValuesNodes(
            *(self._graph.op("Concat", old, more, axis=2) for old, more in pairs)
        )
        return self._layers[index]

    def give(self, length: str) -> None:
        """Declare all keys and values as outputs."""
        for index, (n_heads, d_head) in enumerate(self._shapes):
            for role, value in zip(("key", "value"), self._layers[index]):
                name = f"present.{index}.{self._kind}{role}"
                self._graph.output(name, value, (BATCH, n_heads, length, d_head))


def _tokens_and_mask(graph: Graph, length: str) -> tuple[Value, Value]:
    tokens = graph.input("input_ids", (BATCH, length))
    return tokens, _mask(graph, "attention_mask", length)


def _mask(graph: Graph, name: str, length: str) -> Value:
    """Return a mask that is True where a token is real."""
    is_real = graph.input(name, (BATCH, length))
    return graph.op("Not", graph.op("Equal", is_real, graph.constant(0)))


def _count_positions(graph: Graph, mask: Value) -> Value:
    """Count positions as `masks.count_positions` does: from the first real token, wherever the
    padding is."""
    counted = graph.op("CumSum", mask, graph.constant(1))
    positions = graph.op("Sub", counted, graph.constant(1.0))
    return graph.op("Cast", graph.op("Relu", positions), to=_INT64)


def _causal_mask(graph: Graph, tokens: Value, past: _Past) -> tuple[Value, Value, Value]:
    """Return the positions of queries and keys, and a mask (query, key) of which may attend to
    which."""
    zero, one = graph.constant(0), graph.constant(1)
    n_past = graph.op("Squeeze", past.length())
    n_all = graph.op("Add", n_past, graph.size(tokens, 1))
    queries = graph.op("Range", n_past, n_all, one)
    keys = graph.op("Range", zero, n_all, one)
    rows, columns = graph.unsqueeze(queries, 1), graph.unsqueeze(keys, 0)
    return queries, keys, graph.op("LessOrEqual", columns, rows)


_INT64 = 7  # TensorProto.INT64
