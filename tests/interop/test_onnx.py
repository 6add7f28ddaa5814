"""What onnxruntime runs computes what ours does, or is not written."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings

import clearhead
from clearhead.cli import main
from clearhead.config import ModelConfig
from clearhead.errors import ConfigError, FolderError
from clearhead.interop.huggingface import tokenizer as huggingface_tokenizer
from clearhead.interop.model_folder import TokenIds, load_model, save_model
from clearhead.interop.onnx import layers
from clearhead.interop.onnx.certificate import MAX_ROUNDING
from clearhead.interop.onnx.exporting import export_onnx
from clearhead.interop.onnx.precision import SUFFIXES, stored
from clearhead.interop.onnx.running import OnnxFolder
from clearhead.models import Seq2Seq
from tests.drawing import configs, draws, random_model, random_tokens

onnx = pytest.importorskip("onnx", reason="needs the extra onnx")
onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")

SMALL = ModelConfig(vocab_size=53, d_model=24, n_layers=2, n_heads=4, d_ff=31, max_length=29)
GROUPED: dict[str, Any] = {"positions": "rotary", "n_kv_heads": 2, "d_head": 10, "norm": "rms"}
GATED: dict[str, Any] = {"feed_forward": "swiglu", "bias": False, "tie_output": False}
FIXED = {
    "pre-norm translator": SMALL,
    "post-norm translator of two vocabularies": replace(
        SMALL, **GROUPED, **GATED, norm_placement="post", target_vocab_size=47, output_bias=True
    ),
    "decoder with ALiBi": replace(SMALL, family="decoder", positions="alibi", feed_forward="gelu"),
    "decoder with turned pairs": replace(
        SMALL, **GROUPED, **GATED, family="decoder", position_pairs="interleaved"
    ),
    "BERT": replace(
        SMALL,
        family="encoder",
        norm_placement="post",
        positions="learned",
        first_position=2,
        n_segments=2,
        embedding_norm=True,
        feed_forward="gelu-tanh",
    ),
}
CLASSIFIER = replace(SMALL, family="encoder", labels=("good", "bad", "so so"))


def saved(config: ModelConfig, folder: Path, **options: Any) -> Path:
    save_model(random_model(config, dtype=torch.float32), folder / "ours", **options)
    return folder / "ours"


@pytest.mark.parametrize("config", FIXED.values(), ids=FIXED)
def test_a_configuration_is_exported_with_a_certificate(config: ModelConfig, tmp_path: Path):
    certificate = export_onnx(saved(config, tmp_path), tmp_path / "theirs")
    assert certificate.largest_difference < 1e-5
    assert certificate.n_tokens > 100
    names = ("random", "padded", "length 1", "length 29", "a batch of 5 with an empty row")
    assert set(names) < set(certificate.compared) or config.family == "encoder"
    assert json.loads((tmp_path / "theirs" / "parity.json").read_text())["agrees"]


@pytest.mark.slow
@settings(max_examples=60, phases=[Phase.generate])
@given(config=configs())
def test_every_option_is_exported_with_a_certificate(config: ModelConfig):
    with TemporaryDirectory() as name:
        folder = Path(name)
        certificate = export_onnx(saved(config, folder), folder / "theirs")
        assert certificate.largest_difference < 5e-5
        assert certificate.n_tokens > 50


@settings(max_examples=draws(2, nightly=10), phases=[Phase.generate])
@given(config=configs(residual=True))
def test_fp16_and_int8_stay_within_their_limits(config: ModelConfig):
    for precision in ("fp16", "int8"):
        with TemporaryDirectory() as name:
            folder = Path(name)
            ours, out = saved(config, folder), folder / "theirs"
            certificate = export_onnx(ours, out, precision=precision)
            assert certificate.largest_difference < 5e-5
            assert 0 < certificate.rounding <= MAX_ROUNDING[precision]
            said = json.loads((out / "config.json").read_text())["transformers.js_config"]
            assert said == {"dtype": precision}
            assert all(path.stem.endswith(SUFFIXES[precision]) for path in (out / "onnx").iterdir())


def test_weights_that_are_fp16_already_are_not_rounded(tmp_path: Path):
    save_model(random_model(SMALL, dtype=torch.float16), tmp_path / "ours")
    half = export_onnx(tmp_path / "ours", tmp_path / "half", precision="fp16")
    assert half.rounding == 0.0
    export_onnx(tmp_path / "ours", tmp_path / "single", check=False)
    sizes = [
        sum(path.stat().st_size for path in (tmp_path / name / "onnx").iterdir())
        for name in ("half", "single")
    ]
    assert sizes[0] < 0.75 * sizes[1]


def test_each_row_of_a_matrix_is_rounded_to_its_own_255_steps():
    weight = torch.tensor([[1.27, -0.634, 0.0], [0.0, 0.0, 0.0]])
    held = stored(weight, "int8")
    assert held.numbers.tolist() == [[127, -63, 0], [0, 0, 0]]
    torch.testing.assert_close(held.restored()[0], torch.tensor([1.27, -0.63, 0.0]))
    assert stored(weight[0], "int8").scales is None  # a bias or a norm


def test_a_classifier_names_its_labels(tmp_path: Path):
    certificate = export_onnx(saved(CLASSIFIER, tmp_path), tmp_path / "theirs")
    assert certificate.architecture == "BertForSequenceClassification"
    said = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert said["id2label"] == {"0": "good", "1": "bad", "2": "so so"}


def test_the_folder_is_what_transformers_js_reads(tmp_path: Path, tokenizer: Path):
    ours = saved(replace(SMALL, vocab_size=300), tmp_path, tokenizer=tokenizer)
    out = tmp_path / "theirs"
    assert main(["export", str(ours), str(out), "--to", "onnx"]) == 0
    files = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert files == {
        "README.md",
        "config.json",
        "generation_config.json",
        "onnx/decoder_model_merged.onnx",
        "onnx/encoder_model.onnx",
        "parity.json",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert json.loads((out / "config.json").read_text())["model_type"] == "marian"
    # It has no beam search, and a setting of one would change what it writes.
    assert "num_beams" not in json.loads((out / "generation_config.json").read_text())
    decoder = onnx.load(out / "onnx" / "decoder_model_merged.onnx")
    shapes = {
        each.name: [d.dim_param or d.dim_value for d in each.type.tensor_type.shape.dim]
        for each in decoder.graph.input
    }
    assert shapes["input_ids"] == ["batch_size", "length"]
    assert shapes["encoder_hidden_states"] == ["batch_size", "source_length", 24]
    assert shapes["past_key_values.1.decoder.key"] == ["batch_size", 4, "past_length", 6]
    assert shapes["past_key_values.1.encoder.value"] == ["batch_size", 4, "past_source_length", 6]
    assert "present.0.encoder.key" in [each.name for each in decoder.graph.output]


def test_any_batch_and_any_length_is_run(tmp_path: Path):
    config = replace(SMALL, positions="none")
    ours = saved(config, tmp_path)
    export_onnx(ours, tmp_path / "theirs", check=False)
    opened, model = OnnxFolder(tmp_path / "theirs", "fp32"), load_model(ours)
    assert isinstance(model, Seq2Seq)
    for n_rows, n_source, n_target in ((1, 1, 1), (1, 29, 2), (7, 2, 29)):
        source = random_tokens(config, n_rows, n_source)
        target = random_tokens(config, n_rows, n_target, seed=1)
        given = {"input_ids": source, "attention_mask": torch.ones_like(source)}
        found = opened.logits({**given, "decoder_input_ids": target}, tokens_at_once=2)
        with torch.no_grad():
            torch.testing.assert_close(found, model(source, target), atol=1e-5, rtol=1e-4)


linear, activation = layers.linear, layers.activation
DEFECTS: dict[str, tuple[str, Callable[..., Any]]] = {
    "no bias": ("with_bias", lambda graph, x, bias: x),
    "another activation": ("activation", lambda graph, x, config: graph.op("Sigmoid", x)),
    "no scale": ("embed_tokens", lambda g, t, table: g.op("Gather", g.weight(table.weight), t)),
    "a mask that is forgotten": (
        "view",
        lambda graph, *, stack=None, **_: layers.ViewNodes(),
    ),
}


@pytest.mark.parametrize(("name", "defect"), DEFECTS.values(), ids=DEFECTS)
def test_a_folder_that_computes_something_else_is_not_kept(
    name: str, defect: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    ours = saved(replace(SMALL, n_layers=1), tmp_path)
    monkeypatch.setattr(layers, name, defect)
    with pytest.raises(FolderError, match="ONNX folder just written differs from the model"):
        export_onnx(ours, tmp_path / "theirs")
    assert [path.name for path in tmp_path.iterdir()] == ["ours"]


def test_a_tokenizer_that_leaves_out_the_end_is_not_kept(
    tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
):
    ours = saved(replace(SMALL, vocab_size=300, n_layers=1), tmp_path, tokenizer=tokenizer)
    monkeypatch.setattr(huggingface_tokenizer, "_template", lambda *_: None)
    with pytest.raises(FolderError, match=r"tokenizer\.json gives other ids for 'a'"):
        export_onnx(ours, tmp_path / "theirs")


def test_rounding_that_changes_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    ours = saved(replace(SMALL, family="decoder", n_layers=1), tmp_path)
    monkeypatch.setitem(MAX_ROUNDING, "int8", 1e-6)
    with pytest.raises(ConfigError, match=r"precision='int8' moves the logits by .*='fp16'"):
        export_onnx(ours, tmp_path / "theirs", precision="int8")
    assert [path.name for path in tmp_path.iterdir()] == ["ours"]


def test_a_weight_that_fp16_cannot_hold_is_refused(tmp_path: Path):
    model = random_model(replace(SMALL, family="decoder", n_layers=1), dtype=torch.float32)
    with torch.no_grad():
        model.tokens.weight[3, 3] = 1e5
    save_model(model, tmp_path / "ours")
    with pytest.raises(ConfigError, match=r"precision='fp16' cannot hold a weight of 1e\+05"):
        export_onnx(tmp_path / "ours", tmp_path / "theirs", precision="fp16")


def test_a_model_that_is_too_large_for_a_file_is_refused(tmp_path: Path):
    ours = saved(SMALL, tmp_path)
    with pytest.raises(ConfigError, match=r"precision='fp32' makes .* bytes, and .*='int8'"):
        export_onnx(ours, tmp_path / "theirs", max_bytes=1000)
    assert [path.name for path in tmp_path.iterdir()] == ["ours"]


@pytest.mark.parametrize("to", ["huggingface", "ctranslate2"])
def test_only_onnx_has_a_precision(to: str, tmp_path: Path):
    ours = saved(SMALL, tmp_path)
    with pytest.raises(ConfigError, match=r"precision='int8' belongs to to='onnx', and this is"):
        clearhead.export(ours, tmp_path / "theirs", to=to, precision="int8")  # pyright: ignore


@pytest.mark.parametrize("max_length", [1, 2])
def test_even_a_model_of_hardly_any_length(max_length: int, tmp_path: Path):
    ours = saved(replace(SMALL, max_length=max_length, n_layers=1), tmp_path)
    assert export_onnx(ours, tmp_path / "theirs").n_tokens > 0


def test_a_prompt_of_pairs_is_told_apart_in_the_readme(tmp_path: Path, tokenizer: Path):
    config = replace(SMALL, family="decoder", vocab_size=300)
    ours = saved(config, tmp_path, ids=TokenIds(target_start=1), tokenizer=tokenizer)
    export_onnx(ours, tmp_path / "theirs", check=False)
    readme = (tmp_path / "theirs" / "README.md").read_text(encoding="utf-8")
    assert "```js" in readme and "[...line, 2, 1]" in readme


def test_without_the_libraries_it_says_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    ours = saved(SMALL, tmp_path)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)  # as if it were not installed
    assert main(["export", str(ours), str(tmp_path / "theirs"), "--to", "onnx"]) == 2
    assert "pip install 'clearhead[onnx]'" in capsys.readouterr().err
    assert not (tmp_path / "theirs").exists()
