"""The graphs compute what Python computes: everything that a page shows, at any length, with any
switch and every option."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings

from clearhead.config import ModelConfig
from clearhead.inspection.edits import put, zero
from clearhead.inspection.lens import attribution, norms
from clearhead.inspection.look import KINDS, Text, pass_over
from clearhead.inspection.trace import mean_of, trace
from clearhead.interop.onnx import layers
from clearhead.models import Classifier, MaskedLM, Model, Seq2Seq
from clearhead.web.certificate import certify, stage_logits
from clearhead.web.graphs import WEIGHTS, write_graphs
from clearhead.web.running import PageGraphs
from clearhead.web.towers import around, share_names, towers
from tests.drawing import configs, draws, random_model
from tests.inspection.subjects import CONFIGS, subject

onnx = pytest.importorskip("onnx", reason="needs the extra onnx")
pytest.importorskip("onnxruntime", reason="needs the extra onnx")


@pytest.mark.parametrize("kind", [*CONFIGS, "classifier"])
def test_a_graph_computes_what_python_computes(kind: str, tmp_path: Path):
    model = subject(kind).model
    write_graphs(model, tmp_path)
    certificate = certify(model, tmp_path)
    assert not certificate.failed, certificate.verdict()
    assert certificate.n_tokens > 70
    assert assert_pythons(model, PageGraphs(tmp_path)) > 0.01


@settings(max_examples=draws(4, nightly=60), phases=[Phase.generate])
@given(config=configs())
def test_every_option_is_written(config: ModelConfig):
    model = random_model(config, dtype=torch.float32)
    with TemporaryDirectory() as name:
        write_graphs(model, Path(name))
        assert_pythons(model, PageGraphs(Path(name)))


def test_a_graph_that_computes_something_else_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(layers, "with_bias", lambda graph, x, bias: x)
    model = subject("decoder").model
    write_graphs(model, tmp_path)
    assert certify(model, tmp_path).failed


def test_weights_are_stored_once_and_as_the_run_stores_them(tmp_path: Path):
    model = subject("encoder-decoder").model  # one table for source, target and output
    n_weights = sum(x.numel() for x in model.parameters())
    n_positions = model.config.max_length * model.config.d_model  # a table that is computed
    sizes = {"single": 4, "half": 2}
    for name, n_bytes in sizes.items():
        (tmp_path / name).mkdir()
        model = model if name == "single" else random_model(model.config).half().float()
        write_graphs(model, tmp_path / name)
        size = (tmp_path / name / WEIGHTS).stat().st_size - 4 * n_positions
        padding = 64 * sum(1 for _ in model.parameters())
        assert n_weights * n_bytes <= size < n_weights * n_bytes + padding
        inside = sum(path.stat().st_size for path in (tmp_path / name).glob("*.onnx"))
        assert inside < 200_000


def assert_pythons(model: Model, graphs: PageGraphs) -> float:
    """Lengths, shares, lens and weights; with all on, and with two switches off. Returns the
    largest change of a logit by the switches, which in a random model may be tiny."""
    ids = list(range(3, 12))
    text = Text(ids[:6], ids, ids) if isinstance(model, Seq2Seq) else Text(None, ids, ids)
    text = Text(ids, None, ids) if isinstance(model, MaskedLM | Classifier) else text

    def run() -> torch.Tensor:
        return pass_over(model, text)

    found = graphs.run(text)
    with torch.no_grad(), trace(model) as t:
        logits = run()
    own = found["logits"][-1]  # of a classifier, from its first vector alone
    assert np.allclose(own[0] if isinstance(model, Classifier) else own, logits, atol=1e-4)
    tower = towers(model)[-1]
    lengths = norms(t, [f"{around(each)}.added" for each in tower.sublayers])[:, 0]
    assert np.allclose(found["lengths"][1:], lengths, atol=1e-4)
    assert np.allclose(found["logits"], stage_logits(t), atol=1e-4)
    if share_names(model):
        values = attribution(t, torch.tensor([text.written])).values[:, 0]
        assert np.allclose(found["shares"], values, atol=1e-4)
        logits_written = own[np.arange(len(ids)), text.written]
        assert np.allclose(found["shares"].sum(0), logits_written, atol=1e-4)
    else:
        assert "shares" not in found

    # The last head of the last self-attention off, and the first sublayer adds its mean.
    place, attention = [
        (place, name) for place, name in enumerate(tower.attentions) if "self" in name
    ][-1]
    heads_on = np.ones_like(found["heads_mean"][..., 0], dtype=bool)
    heads_on[place, -1] = False
    added_on = np.ones(len(tower.sublayers), dtype=bool)
    added_on[0] = False
    switched = {"heads_on": heads_on, "added_on": added_on, "added_value": found["added_mean"]}
    mine = graphs.run(text, **switched)
    name = f"{around(tower.sublayers[0])}.added"
    edits = [
        zero(f"{attention}.heads", heads=[tower.n_heads - 1]),
        put(name, mean_of(model, name, [run])),
    ]
    with torch.no_grad(), trace(model, edit=edits) as t:
        run()
    assert np.allclose(mine["logits"], stage_logits(t), atol=1e-4)
    for kind in tower.kinds:
        part = KINDS[kind][1]
        for layer, weights in enumerate(mine[kind]):
            expected = t[f"{tower.name}.layers.{layer}.{part}.weights"][0]
            assert np.allclose(weights, expected, atol=1e-5)
    return float(np.abs(mine["logits"][-1] - found["logits"][-1]).max())
