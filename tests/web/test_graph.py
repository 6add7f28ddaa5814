"""The graphs compute what Python computes: everything that a page shows, at any length, with any
switch. Drawing takes a minute or more, so every push looks at the modules that are drawn."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clearhead.inspection.edits import put, zero
from clearhead.inspection.lens import attribution, logit_lens, norms
from clearhead.inspection.look import KINDS, Text, pass_over
from clearhead.inspection.trace import mean_of, trace
from clearhead.models import MaskedLM, Model, Seq2Seq
from clearhead.web.certificate import certify, run_graphs
from clearhead.web.drawing import WEIGHTS, draw_graphs
from clearhead.web.graph import WebGraph, around, graphs, share_names, sublayer_names
from tests.inspection.subjects import CONFIGS, subject


class Undrawn:
    """A module in the place of its graph."""

    def __init__(self, graph: WebGraph) -> None:
        self.graph = graph

    def run(self, names: list[str], given: dict[str, np.ndarray]) -> list[np.ndarray]:
        inputs = [torch.from_numpy(given[n]) if n in given else None for n in self.graph.inputs]
        with torch.no_grad():
            found = self.graph.module(*inputs)
        assert list(found) == names
        return [found[name].numpy() for name in names]


@pytest.mark.parametrize("kind", CONFIGS)
def test_what_is_drawn_computes_what_python_computes(kind: str):
    model = subject(kind).model
    drawn = graphs(model)
    assert_pythons(model, drawn, {graph.name: Undrawn(graph) for graph in drawn})


@pytest.mark.slow
@pytest.mark.parametrize("kind", CONFIGS)
def test_a_graph_computes_what_python_computes(kind: str, tmp_path: Path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model = subject(kind).model
    drawn = draw_graphs(model, tmp_path)
    certificate = certify(model, drawn, tmp_path)
    assert not certificate.failed, certificate.verdict()
    n_bytes = sum(x.numel() for x in model.parameters()) * 4
    assert (tmp_path / WEIGHTS).stat().st_size < 1.6 * n_bytes  # tables of positions come to it
    sessions = {
        graph.name: onnxruntime.InferenceSession(tmp_path / f"{graph.name}.onnx") for graph in drawn
    }
    assert_pythons(model, drawn, sessions)


def assert_pythons(model: Model, drawn: list[WebGraph], sessions: dict[str, Any]) -> None:
    """Lengths, shares, lens and weights; with all on, and with two switches off."""
    ids = list(range(3, 12))
    text = Text(ids[:6], ids, ids) if isinstance(model, Seq2Seq) else Text(None, ids, ids)
    text = Text(ids, None, ids) if isinstance(model, MaskedLM) else text

    def run() -> torch.Tensor:
        return pass_over(model, text)

    found = run_graphs(drawn, sessions, text)
    with torch.no_grad(), trace(model) as t:
        run()
    tower = drawn[-2].name
    assert tower in ("encoder", "decoder")
    sublayers = sublayer_names(model, tower, ("self_attention", "cross_attention", "feed_forward"))  # type: ignore[arg-type]
    lengths = norms(t, [f"{around(each)}.added" for each in sublayers])[:, 0]
    assert np.allclose(found["lengths"][1:], lengths, atol=1e-4)
    if share_names(model):
        values = attribution(t, torch.tensor([text.written])).values[:, 0]
        assert np.allclose(found["shares"], values, atol=1e-4)
        assert np.allclose(found["shares"].sum(0), _own_logits(found, text), atol=1e-4)
    else:
        assert "shares" not in found

    # Head 1 of the second layer's attention off, and what the first sublayer adds is its mean.
    attentions = sublayer_names(model, tower, ("self_attention",))  # type: ignore[arg-type]
    place = sublayer_names(model, tower, ("self_attention", "cross_attention")).index(attentions[1])  # type: ignore[arg-type]
    heads_on = np.ones_like(found["heads_mean"][..., 0], dtype=bool)
    heads_on[place, 1] = False
    added_on = np.ones(len(sublayers), dtype=bool)
    added_on[0] = False
    switched = {"heads_on": heads_on, "added_on": added_on, "added_value": found["added_mean"]}
    mine = run_graphs(drawn, sessions, text, **switched)
    name = f"{around(sublayers[0])}.added"
    edits = [
        zero(f"{attentions[1]}.heads", heads=[1]),
        put(name, mean_of(model, name, [run])),
    ]
    with torch.no_grad(), trace(model, edit=edits) as t:
        run()
    assert np.allclose(mine["logits"], logit_lens(t).logits[:, 0], atol=1e-4)
    assert not np.allclose(mine["logits"][-1], found["logits"][-1], atol=1e-2)
    kind_of = "self" if tower == "encoder" else "causal"
    part = KINDS[kind_of][1]
    assert np.allclose(mine[kind_of][1], t[f"{tower}.layers.1.{part}.weights"][0], atol=1e-5)


def _own_logits(found: dict[str, np.ndarray], text: Text) -> np.ndarray:
    return found["logits"][-1][np.arange(len(text.written)), text.written]
