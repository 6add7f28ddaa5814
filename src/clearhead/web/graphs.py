"""Writes a model as ONNX graphs that return what a trace shows: the live page's numbers without
Python.

Each tower is one graph, and another graph makes logits from the stream. A tower returns the weights
of its attentions, its stream after each sublayer, and what each sublayer adds, under the names of
`inspection/sites.py`. Its switches are inputs. A graph takes one text: the page runs the hypotheses
of a beam one after another, so that no row needs padding.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from clearhead.inspection.lens import last_norm, output_matrix
from clearhead.interop.onnx import layers, stacks
from clearhead.interop.onnx.graph import Graph, Value, WeightFile
from clearhead.interop.onnx.layers import ValueWatch, ViewNodes
from clearhead.interop.onnx.precision import Precision
from clearhead.interop.onnx.stacks import SourceNodes
from clearhead.models import CausalLM, Model, Seq2Seq
from clearhead.parts.later.rms_norm import RMSNorm
from clearhead.parts.norm import LayerNorm
from clearhead.web.towers import PageTower, has_shares, towers

WEIGHTS, OUTPUT = "weights.bin", "output"


def write_graphs(model: Model, folder: Path) -> None:
    """Write the graphs of a model, and one file of weights for all of them. The weights are in half
    precision if that holds every weight exactly, as for a run that stores its weights in half
    precision."""
    exact = all(torch.equal(w.half().to(w), w) for w in model.parameters())
    precision: Precision = "fp16" if exact else "fp32"
    weight_file = WeightFile(folder / WEIGHTS)

    def new() -> Graph:
        return Graph(model, precision, weight_file)

    graphs = {tower.name: _tower_graph(new(), model, tower) for tower in towers(model)}
    graphs[OUTPUT] = _output_graph(new(), model)
    weight_file.save()
    for name, graph in graphs.items():
        graph.save(folder / f"{name}.onnx")


class Switches(ValueWatch):
    """Reads the values of a tower in the order in which they are computed, and replaces values that
    are off by inputs of the graph."""

    def __init__(self, graph: Graph, tower: PageTower, d_model: int) -> None:
        n_attentions, n_sublayers = len(tower.attentions), len(tower.sublayers)
        heads = n_attentions, tower.n_heads
        self._graph = graph
        self._heads_on = graph.input("heads_on", heads, of=np.bool_)
        self._heads_value = graph.input("heads_value", (*heads, tower.d_head), of=np.float32)
        self._added_on = graph.input("added_on", (n_sublayers,), of=np.bool_)
        self._added_value = graph.input("added_value", (n_sublayers, d_model), of=np.float32)
        self.all_weights: list[Value] = []
        self.all_heads: list[Value] = []
        self.all_added: list[Value] = []
        self.stages: list[Value] = []

    def note_weights(self, weights: Value) -> None:
        """Note the weights, which cannot be switched off."""
        self.all_weights.append(weights)

    def switch_heads(self, heads: Value) -> Value:
        """Replace a head that is off by one vector at all positions."""
        graph, index = self._graph, self._graph.constant(len(self.all_heads))
        on = graph.unsqueeze(graph.op("Gather", self._heads_on, index), 1, 2)
        value = graph.unsqueeze(graph.op("Gather", self._heads_value, index), 1)
        self.all_heads.append(graph.op("Where", on, heads, value))
        return self.all_heads[-1]

    def switch_sublayer(self, change: Value) -> Value:
        """Replace a sublayer that is off by one vector at all positions."""
        index = self._graph.constant(len(self.all_added))
        on, value = (
            self._graph.op("Gather", table, index) for table in (self._added_on, self._added_value)
        )
        self.all_added.append(self._graph.op("Where", on, change, value))
        return self.all_added[-1]

    def note_stream(self, stream: Value) -> None:
        """Note the stream, which cannot be switched off."""
        self.stages.append(stream)


def _tower_graph(graph: Graph, model: Any, tower: PageTower) -> Graph:
    d_model, stack = model.config.d_model, getattr(model, tower.name)
    tokens = graph.input("tokens", (1, "length"))
    positions = graph.op("Range", graph.constant(0), graph.size(tokens, 1), graph.constant(1))
    positions = graph.unsqueeze(positions, 0)
    source = _source(graph, model) if tower.name == "decoder" else None
    watch = Switches(graph, tower, d_model)
    x = _embedded(graph, model, tower, tokens, positions)
    watch.note_stream(x)
    allowed = None
    if tower.name == "decoder":
        causal = graph.op(
            "LessOrEqual", graph.unsqueeze(positions, 1), graph.unsqueeze(positions, 2)
        )
        allowed = graph.unsqueeze(causal, 1)
    view = layers.view(
        graph,
        allowed=allowed,
        may_be_empty=False,
        stack=stack,
        positions=positions,
        key_positions=positions,
    )
    x = stacks.through_layers(graph, x, stack, model.config, view, source=source, watch=watch)
    _give_weights(graph, tower, watch)
    _give_means(graph, tower, watch, d_model)
    if not tower.predicts:
        graph.output("memory", layers.norm(graph, x, stack.norm), (1, "length", d_model))
        return graph
    n_stages = len(watch.stages)
    graph.output("stages", _side_by_side(graph, watch.stages), (n_stages, "length", d_model))
    parts = _side_by_side(graph, [watch.stages[0], *watch.all_added])
    lengths = graph.op("ReduceL2", parts, graph.constant([-1]), keepdims=0)
    graph.output("lengths", lengths, (n_stages, "length"))
    if has_shares(model):
        _give_shares(graph, model, watch)
    return graph


def _output_graph(graph: Graph, model: Model) -> Graph:
    """Make the graph from any stage of the stream to logits: those of the last stage are the
    model's own, and the others are what the logit lens shows."""
    config = model.config
    rows = graph.input("rows", ("length", config.d_model), of=np.float32)
    size = len(config.labels) or config.output_vocab_size
    graph.output("logits", stacks.scores(graph, rows, model), ("length", size))
    return graph


def _embedded(graph: Graph, model: Any, tower: PageTower, tokens: Value, positions: Value) -> Value:
    table, part = model.tokens, model.embedding
    if tower.name == "decoder" and isinstance(model, Seq2Seq):
        table, part = model.target_table, model.target_embedding
    segments = None if part.segments is None else graph.op("Sub", tokens, tokens)  # all are 0
    return layers.embed(graph, tokens, table, part, positions, None, segments)


def _source(graph: Graph, model: Seq2Seq | CausalLM) -> SourceNodes | None:
    if not isinstance(model, Seq2Seq):
        return None
    memory = graph.input("memory", (1, "source_length", model.config.d_model), of=np.float32)
    parts: list[Any] = [layer.cross_attention for layer in model.decoder.layers]
    return SourceNodes([layers.keys_values_of(graph, memory, part) for part in parts], ViewNodes())


def _give_weights(graph: Graph, tower: PageTower, watch: Switches) -> None:
    for kind, key_length in tower.kinds.items():
        chosen = [
            weights
            for name, weights in zip(tower.attentions, watch.all_weights)
            if ("cross" in name) == (kind == "cross")
        ]
        shape = (len(chosen), tower.n_heads, "length", key_length)
        graph.output(kind, _side_by_side(graph, chosen), shape)


def _give_means(graph: Graph, tower: PageTower, watch: Switches, d_model: int) -> None:
    """Add outputs for the means over the positions, which replace values that are off."""
    heads, added = _side_by_side(graph, watch.all_heads), _side_by_side(graph, watch.all_added)
    heads = graph.op("ReduceMean", heads, graph.constant([2]), keepdims=0)
    added = graph.op("ReduceMean", added, graph.constant([1]), keepdims=0)
    graph.output("heads_mean", heads, (len(tower.attentions), tower.n_heads, tower.d_head))
    graph.output("added_mean", added, (len(tower.sublayers), d_model))


def _give_shares(graph: Graph, model: Any, watch: Switches) -> None:
    """Compute how much each part of the stream adds to the logit of `written`: see
    `lens.attribution`."""
    last, norm = model.decoder.layers[-1].around_feed_forward, last_norm(model)
    assert isinstance(norm, LayerNorm | RMSNorm)
    if last.placement == "pre":
        parts = [watch.stages[0], *watch.all_added]
    else:
        parts = [watch.stages[-2], watch.all_added[-1]]
    parts = parts if last.residual else parts[-1:]
    written = graph.input("written", (1, "length"))
    direction = graph.op("Gather", graph.weight(output_matrix(model)), written)
    added, stream = _side_by_side(graph, parts), graph.op("Sum", *parts)
    if isinstance(norm, LayerNorm):
        added, stream = (graph.op("Sub", x, _mean(graph, x)) for x in (added, stream))
    square = _mean(graph, graph.op("Mul", stream, stream))
    deviation = graph.op("Sqrt", graph.op("Add", square, graph.constant(float(norm.eps))))
    scaled = graph.op("Div", graph.op("Mul", direction, graph.weight(norm.weight)), deviation)
    bias = getattr(norm, "bias", None)
    bias = graph.constant(0.0) if bias is None else graph.weight(bias)
    constant = _sum(graph, graph.op("Mul", direction, bias))
    if model.output.bias is not None:
        own = graph.op("Gather", graph.weight(model.output.bias), written)
        constant = graph.op("Add", constant, own)
    shares = [_sum(graph, graph.op("Mul", added, scaled)), constant]
    graph.output("shares", _side_by_side(graph, shares), (len(parts) + 1, "length"))


def _side_by_side(graph: Graph, values: list[Value]) -> Value:
    return graph.op("Concat", *values, axis=0)


def _mean(graph: Graph, x: Value) -> Value:
    return graph.op("ReduceMean", x, graph.constant([-1]), keepdims=1)


def _sum(graph: Graph, x: Value) -> Value:
    return graph.op("ReduceSum", x, graph.constant([-1]), keepdims=0)
