"""A model as ONNX graphs that show what a trace shows: the live page's numbers without Python.

Each tower is one graph, and so is what makes logits of the stream. A tower returns the weights of
its attentions, its stream after each sublayer and what each sublayer adds, under the names of
`inspection/sites.py`; its switches are inputs. A graph takes one text: the page runs the hypotheses
of a beam one after another, so that no row needs padding.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from clearhead.inspection.lens import (
    attribution_parts,
    knows_norm,
    last_norm,
    norms,
    predicting_tower,
    project,
    shares_of,
    stage_names,
)
from clearhead.inspection.sites import TowerName
from clearhead.inspection.trace import Trace, trace
from clearhead.models import CausalLM, MaskedLM, Model, Seq2Seq
from clearhead.parts.attention import MultiHeadAttention, merge_heads, split_heads
from clearhead.parts.residual import Residual
from clearhead.shapes import Tensor
from clearhead.stacks.decoder import Memory

EXAMPLE = 5, 7  # tokens of source and target with which a graph is drawn; not 1, nor the same
ATTENTIONS = ("self_attention", "cross_attention")
SUBLAYERS = (*ATTENTIONS, "feed_forward")


class WebGraph(NamedTuple):
    """A part of the model, and what it is drawn with."""

    name: str
    module: nn.Module
    inputs: dict[str, Tensor | None]
    """None: this model has no such input."""
    outputs: list[str]
    lengths: dict[str, list[int]]
    """Of each input: which of its dimensions is a number of tokens."""


def graphs(model: Model) -> list[WebGraph]:
    """All graphs of a model, in the order in which they run."""
    towers: list[TowerName] = [t for t in ("encoder", "decoder") if hasattr(model, t)]
    found = [TracedTower(model, tower).graph() for tower in towers]
    rows = torch.zeros(EXAMPLE[1], model.config.d_model)
    output = WebGraph("output", ToLogits(model), {"rows": rows}, ["logits"], {"rows": [0]})
    return [*found, output]


class Switches(NamedTuple):
    """What of a tower is on, and what stands in the place of the rest."""

    heads_on: Tensor
    """(attentions, heads)"""
    heads_value: Tensor
    """(attentions, heads, d_head)"""
    added_on: Tensor
    """(sublayers)"""
    added_value: Tensor
    """(sublayers, d_model)"""


class TracedTower(nn.Module):
    """The encoder or the decoder of a model, with its embedding."""

    def __init__(self, model: Model, tower: TowerName) -> None:
        super().__init__()
        self.model = model
        self.tower: TowerName = tower
        self.attentions = sublayer_names(model, tower, ATTENTIONS)
        self.sublayers = sublayer_names(model, tower, SUBLAYERS)
        self.predicts = predicting_tower(model) == tower
        self.shares = self.predicts and has_shares(model)

    def graph(self) -> WebGraph:
        """With an example of each input."""
        config = self.model.config
        length = EXAMPLE[self.tower == "decoder"]
        inputs: dict[str, Tensor | None] = {
            "tokens": torch.arange(length)[None] % config.output_vocab_size,
            "memory": None,
            "written": None,
        }
        lengths = {"tokens": [1]}
        if self.tower == "decoder" and isinstance(self.model, Seq2Seq):
            inputs["memory"] = torch.zeros(1, EXAMPLE[0], config.d_model)
            lengths["memory"] = [1]
        if self.shares:
            inputs["written"] = torch.zeros(1, length, dtype=torch.long)
            lengths["written"] = [1]
        inputs |= self.all_on()._asdict()
        return WebGraph(self.tower, self, inputs, self.names(), lengths)

    def all_on(self) -> Switches:
        """Nothing switched off."""
        attention = _attention(self.model, self.attentions[0])
        n_heads, d_head, d_model = attention.n_heads, attention.d_head, self.model.config.d_model
        return Switches(
            torch.ones(len(self.attentions), n_heads, dtype=torch.bool),
            torch.zeros(len(self.attentions), n_heads, d_head),
            torch.ones(len(self.sublayers), dtype=torch.bool),
            torch.zeros(len(self.sublayers), d_model),
        )

    def names(self) -> list[str]:
        """What the graph returns."""
        kinds = ["self"] if self.tower == "encoder" else ["causal"]
        kinds += ["cross"] if any("cross" in name for name in self.attentions) else []
        found = [*kinds, "heads_mean", "added_mean"]
        found += ["stages", "lengths"] if self.predicts else ["memory"]
        return found + (["shares"] if self.shares else [])

    def forward(
        self,
        tokens: Tensor,
        memory: Tensor | None,
        written: Tensor | None,
        heads_on: Tensor,
        heads_value: Tensor,
        added_on: Tensor,
        added_value: Tensor,
    ) -> dict[str, Tensor]:
        """What `names` lists. `memory` is the encoder's, `written` what the shares are of."""
        switches = Switches(heads_on, heads_value, added_on, added_value)
        read = [f"{self.tower}.*", "*embedding.output"]
        with self._switched(switches), trace(self.model, read, explicit=True) as t:
            self._run(tokens, memory)
        found = self._weights(t)
        heads = [t[f"{name}.heads"][0].mean(dim=1) for name in self.attentions]
        added = [t[f"{around(name)}.added"][0].mean(dim=0) for name in self.sublayers]
        found["heads_mean"], found["added_mean"] = torch.stack(heads), torch.stack(added)
        if not self.predicts:
            found["memory"] = t[f"{self.tower}.output"]
            return found
        stages = stage_names(self.model, self.tower)
        found["stages"] = torch.cat([t[stage] for stage in stages])
        names = [stages[0], *(f"{around(name)}.added" for name in self.sublayers)]
        found["lengths"] = norms(t, names)[:, 0]
        if written is not None:
            found["shares"] = shares_of(t, written).values[:, 0]
        return found

    def _run(self, tokens: Tensor, memory: Tensor | None) -> None:
        model = self.model
        if not isinstance(model, Seq2Seq):
            assert isinstance(model, CausalLM | MaskedLM)
            model.hidden(tokens, real="all")
        elif self.tower == "encoder":
            model.encode(tokens, real="all")
        else:
            assert memory is not None
            model.decode_hidden(tokens, Memory(memory, None), real="all")

    def _weights(self, t: Trace) -> dict[str, Tensor]:
        kinds: dict[str, list[Tensor]] = {}
        for name in self.attentions:
            kind = "cross" if "cross" in name else self.names()[0]
            kinds.setdefault(kind, []).append(t[f"{name}.weights"][0])
        return {kind: torch.stack(layers) for kind, layers in kinds.items()}

    @contextmanager
    def _switched(self, switches: Switches) -> Iterator[None]:
        """Hooks that stand before those of a trace: it reads what the switches have left."""
        handles: list[RemovableHandle] = []
        for place, name in enumerate(self.attentions):
            attention = _attention(self.model, name)
            on, value = switches.heads_on[place], switches.heads_value[place]
            hook = _switch_heads(attention.n_heads, on[:, None, None], value[:, None])
            handles.append(attention.output.register_forward_pre_hook(hook))
        for place, name in enumerate(self.sublayers):
            residual = self.model.get_submodule(around(name))
            assert isinstance(residual, Residual)
            hook = _switch_added(switches.added_on[place], switches.added_value[place])
            handles.append(residual.dropout.register_forward_hook(hook))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def _attention(model: Model, name: str) -> MultiHeadAttention:
    found = model.get_submodule(name)
    assert isinstance(found, MultiHeadAttention)
    return found


def _switch_heads(n_heads: int, on: Tensor, value: Tensor) -> Callable[..., Any]:
    def before_the_output(_: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
        return (merge_heads(torch.where(on, split_heads(args[0], n_heads), value)),)

    return before_the_output


def _switch_added(on: Tensor, value: Tensor) -> Callable[..., Any]:
    def after_the_dropout(_: nn.Module, __: Any, x: Tensor) -> Tensor:
        return torch.where(on, x, value)

    return after_the_dropout


class ToLogits(nn.Module):
    """From rows of any stage of the stream to logits: the last stage's are the model's own, the
    others are what the logit lens shows."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, rows: Tensor) -> dict[str, Tensor]:
        return {"logits": project(self.model, rows[None])[0]}


def has_shares(model: Model) -> bool:
    """Whether the logits are a sum of what the sublayers add."""
    return not isinstance(model, MaskedLM) and knows_norm(last_norm(model))


def share_names(model: Model) -> list[str]:
    """The terms of that sum."""
    return [*attribution_parts(model)[0], "constant"] if has_shares(model) else []


def sublayer_names(model: Model, tower: TowerName, kinds: tuple[str, ...]) -> list[str]:
    """The paths of a tower's sublayers of these kinds, in the order in which they run."""
    return [
        f"{tower}.layers.{index}.{kind}"
        for index, layer in enumerate(getattr(model, tower).layers)
        for kind in kinds
        if isinstance(getattr(layer, kind, None), nn.Module)
    ]


def around(sublayer: str) -> str:
    """The path of the residual connection around a sublayer."""
    path, _, kind = sublayer.rpartition(".")
    return f"{path}.around_{kind}"
