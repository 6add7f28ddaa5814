"""Writes clearhead's parts as ONNX: for each part, the nodes that compute what its `forward`
does."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.interop.onnx.graph import Graph, Value
from clearhead.parts.attention import MultiHeadAttention
from clearhead.parts.embeddings import InputEmbedding, OutputProjection, TokenEmbedding
from clearhead.parts.later.gated import GatedFeedForward
from clearhead.parts.norm import LayerNorm
from clearhead.parts.positions import LearnedPositions, SinusoidalPositions
from clearhead.parts.residual import Residual
from clearhead.stacks.encoder import Stack

NOT_ALLOWED = torch.finfo(torch.float32).min / 2
"""The value that `masks.as_bias` uses."""


class RotationNodes(NamedTuple):
    """The cosines and sines of the angles of each token's position."""

    cos: Value
    sin: Value
    pairs: str


class ViewNodes(NamedTuple):
    """What an attention may attend to, as values of the graph: see `parts/view.py`."""

    bias: Value | None = None
    """The bias that is added to the scores: the mask, and ALiBi's penalty for distance."""
    sees_any: Value | None = None
    """0.0 for a query that may attend to no key, else 1.0."""
    rotation: RotationNodes | None = None


class KeysValuesNodes(NamedTuple):
    """What an attention attends to, split into heads."""

    keys: Value
    values: Value


class ValueWatch:
    """Receives the values inside each layer as they are made, and may return others to replace
    them. This class returns them unchanged."""

    def note_weights(self, weights: Value) -> None:
        """Receive the weights of an attention."""

    def switch_heads(self, heads: Value) -> Value:
        """Return the result of each head, before the output matrix."""
        return heads

    def switch_sublayer(self, change: Value) -> Value:
        """Return what a sublayer adds to the stream."""
        return change

    def note_stream(self, stream: Value) -> None:
        """Receive the stream after a sublayer."""


UNWATCHED = ValueWatch()


def view(
    graph: Graph,
    *,
    allowed: Value | None,
    may_be_empty: bool,
    stack: Stack | None = None,
    positions: Value = "",
    key_positions: Value = "",
) -> ViewNodes:
    """Make the view of an attention. `allowed` is True where a query may attend to a key. A stack
    passes its positions, which are those of the queries; with a cache, there are more keys."""
    bias = sees_any = rotation = None
    if allowed is not None:
        low, zero = graph.constant(NOT_ALLOWED), graph.constant(0.0)
        bias = graph.op("Where", allowed, zero, low)
        if may_be_empty:
            as_numbers = as_float(graph, allowed)
            sees_any = graph.op("ReduceMax", as_numbers, graph.constant([-1]), keepdims=1)
    if stack is not None and stack.alibi is not None:
        queries, keys = graph.unsqueeze(positions, 2), graph.unsqueeze(key_positions, 1)
        distance = as_float(graph, graph.op("Abs", graph.op("Sub", queries, keys)))
        slopes = graph.unsqueeze(graph.weight(stack.alibi.slopes), 1, 2)
        penalty = graph.op("Mul", graph.op("Neg", slopes), graph.unsqueeze(distance, 1))
        bias = penalty if bias is None else graph.op("Add", bias, penalty)
    if stack is not None and stack.rotary is not None:
        cos, sin = (
            graph.unsqueeze(graph.op("Gather", graph.weight(table), positions), 1)
            for table in (stack.rotary.cos, stack.rotary.sin)
        )
        rotation = RotationNodes(cos, sin, stack.rotary.pairs)
    return ViewNodes(bias, sees_any, rotation)


def as_float(graph: Graph, value: Value) -> Value:
    """Return a mask or whole numbers as fp32."""
    return graph.op("Cast", value, to=_FLOAT)


def linear(graph: Graph, x: Value, layer: nn.Linear) -> Value:
    """Compute x·Wᵀ + b."""
    product = graph.op("MatMul", x, graph.matrix(layer.weight))
    return with_bias(graph, product, layer.bias)


def with_bias(graph: Graph, x: Value, bias: Tensor | None) -> Value:
    """Return x plus the bias, if there is one."""
    return x if bias is None else graph.op("Add", x, graph.weight(bias))


def norm(graph: Graph, x: Value, part: Any) -> Value:
    """Compute a layer norm, or x / √(mean of x² + eps) · weight; without a norm, return x
    itself."""
    if part is None:
        return x
    weight = graph.weight(part.weight)
    if isinstance(part, LayerNorm):
        bias = () if part.bias is None else (graph.weight(part.bias),)
        return graph.op("LayerNormalization", x, weight, *bias, axis=-1, epsilon=part.eps)
    squares = graph.op("Mul", x, x)
    mean = graph.op("ReduceMean", squares, graph.constant([-1]), keepdims=1)
    root = graph.op("Sqrt", graph.op("Add", mean, graph.constant(float(part.eps))))
    return graph.op("Mul", graph.op("Div", x, root), weight)


def activation(graph: Graph, x: Value, config: ModelConfig) -> Value:
    """Compute the activation of feed-forward networks and of BERT's head."""
    match config.feed_forward:
        case "relu":
            return graph.op("Relu", x)
        case "gelu" | "geglu":
            return graph.op("Gelu", x)
        case "gelu-tanh":
            return graph.op("Gelu", x, approximate="tanh")
        case "silu" | "swiglu":
            return graph.op("Mul", x, graph.op("Sigmoid", x))


def feed_forward(graph: Graph, x: Value, part: Any, config: ModelConfig) -> Value:
    """Compute W₂ · activation(W₁ · x), gated or not."""
    if isinstance(part, GatedFeedForward):
        gate = activation(graph, linear(graph, x, part.gate), config)
        inner = graph.op("Mul", gate, linear(graph, x, part.up))
    else:
        inner = activation(graph, linear(graph, x, part.up), config)
    return linear(graph, inner, part.down)


def around(
    graph: Graph, x: Value, part: Residual, sublayer: Callable[[Value], Value], watch: ValueWatch
) -> Value:
    """Add the residual connection around a sublayer, with its norm before or after."""
    before = part.placement == "pre"
    change = watch.switch_sublayer(sublayer(norm(graph, x, part.norm) if before else x))
    joined = graph.op("Add", x, change) if part.residual else change
    x = joined if before else norm(graph, joined, part.norm)
    watch.note_stream(x)
    return x


def keys_values_of(
    graph: Graph, x: Value, part: MultiHeadAttention, rotation: RotationNodes | None = None
) -> KeysValuesNodes:
    """Return the keys and values of x."""
    keys, values = (
        split_heads(graph, linear(graph, x, role), part.n_kv_heads, part.d_head)
        for role in (part.key, part.value)
    )
    return KeysValuesNodes(rotate(graph, keys, rotation, part.d_head), values)


def attention(
    graph: Graph,
    x: Value,
    seen: KeysValuesNodes,
    part: MultiHeadAttention,
    view: ViewNodes,
    watch: ValueWatch,
) -> Value:
    """Compute softmax(Q·Kᵀ / √d_head)·V, merge the heads, and apply the output matrix."""
    queries = split_heads(graph, linear(graph, x, part.query), part.n_heads, part.d_head)
    queries = rotate(graph, queries, view.rotation, part.d_head)
    queries = graph.op("Div", queries, graph.constant(math.sqrt(part.d_head)))
    keys, values = (one_per_query_head(graph, heads, part) for heads in seen)
    scores = graph.op("MatMul", queries, graph.op("Transpose", keys, perm=[0, 1, 3, 2]))
    if view.bias is not None:
        scores = graph.op("Add", scores, view.bias)
    weights = graph.op("Softmax", scores, axis=-1)
    if view.sees_any is not None:
        weights = graph.op("Mul", weights, view.sees_any)
    watch.note_weights(weights)
    heads = watch.switch_heads(graph.op("MatMul", weights, values))
    side_by_side = graph.op("Transpose", heads, perm=[0, 2, 1, 3])
    merged = graph.reshape(side_by_side, 0, 0, part.n_heads * part.d_head)
    return linear(graph, merged, part.output)


def split_heads(graph: Graph, x: Value, n_heads: int, d_head: int) -> Value:
    """Reshape (batch, length, heads · d_head) → (batch, heads, length, d_head)."""
    return graph.op("Transpose", graph.reshape(x, 0, 0, n_heads, d_head), perm=[0, 2, 1, 3])


def one_per_query_head(graph: Graph, x: Value, part: MultiHeadAttention) -> Value:
    """Repeat keys or values, so that each query head has its own."""
    group = part.n_heads // part.n_kv_heads
    if group == 1:
        return x
    copies = graph.op("Expand", graph.unsqueeze(x, 2), graph.constant([1, 1, group, 1, 1]))
    return graph.reshape(copies, 0, part.n_heads, -1, part.d_head)


def rotate(graph: Graph, x: Value, rotation: RotationNodes | None, d_head: int) -> Value:
    """Rotate each pair of dimensions by the angle of its position."""
    if rotation is None:
        return x
    if rotation.pairs == "halves":
        first, second = graph.ops("Split", x, n_outputs=2, axis=-1, num_outputs=2)
        quarter_turned = graph.op("Concat", graph.op("Neg", second), first, axis=-1)
    else:
        odd, even = (graph.slice(x, 3, start, step=2) for start in (1, 0))
        pairs = (graph.unsqueeze(half, -1) for half in (graph.op("Neg", odd), even))
        quarter_turned = graph.reshape(graph.op("Concat", *pairs, axis=-1), 0, 0, 0, d_head)
    along, across = (
        graph.op("Mul", vector, table)
        for vector, table in ((x, rotation.cos), (quarter_turned, rotation.sin))
    )
    return graph.op("Add", along, across)


def embed_tokens(graph: Graph, tokens: Value, table: TokenEmbedding) -> Value:
    """Return the row of the table for each token, scaled."""
    vectors = graph.op("Gather", graph.weight(table.weight), tokens)
    if table.scale == 1.0:
        return vectors
    return graph.op("Mul", vectors, graph.constant(float(table.scale)))


def embed(
    graph: Graph,
    tokens: Value,
    table: TokenEmbedding,
    part: InputEmbedding,
    positions: Value,
    real: Value | None,
    segments: Value | None = None,
) -> Value:
    """Embed tokens, positions and segments, with a norm if there is one; padding becomes zeros.
    `real` is a mask of numbers."""
    x = embed_tokens(graph, tokens, table)
    added = part.positions
    if added is not None:
        assert isinstance(added, LearnedPositions | SinusoidalPositions)
        rows = added.weight if isinstance(added, LearnedPositions) else added.table
        if added.first:
            positions = graph.op("Add", positions, graph.constant(added.first))
        x = graph.op("Add", x, graph.op("Gather", graph.weight(rows), positions))
    if part.segments is not None:
        assert segments is not None
        x = graph.op("Add", x, embed_tokens(graph, segments, part.segments))
    x = norm(graph, x, part.norm)
    return x if real is None else graph.op("Mul", x, graph.unsqueeze(real, 2))


def logits(graph: Graph, x: Value, part: OutputProjection, table: TokenEmbedding) -> Value:
    """Return a score per token of the vocabulary."""
    weight = table.weight if part.weight is None else part.weight
    return with_bias(graph, graph.op("MatMul", x, graph.matrix(weight)), part.bias)


_FLOAT = 1  # TensorProto.FLOAT, which the library names only once it is imported
