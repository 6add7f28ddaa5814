"""What CTranslate2 opens computes what ours does, or is not written."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import ctranslate2
import pytest
import torch
from hypothesis import Phase, given, settings
from tokenizers import Tokenizer

from clearhead.cli import main
from clearhead.cli.folders import open_folder
from clearhead.config import ModelConfig
from clearhead.decoding import BeamConfig
from clearhead.errors import ConfigError, FolderError
from clearhead.evaluation.translation import translate_lines
from clearhead.interop.ctranslate2 import specification
from clearhead.interop.ctranslate2.exporting import export_ctranslate2
from clearhead.interop.model_folder import TokenIds, save_model
from tests.drawing import configs, random_model

SMALL = ModelConfig(vocab_size=300, d_model=24, n_layers=2, n_heads=4, d_ff=31, max_length=40)
DECODER = replace(SMALL, family="decoder")
LINES = ["hello world", "a", "你好，世界", "hello there, hello world, hello hello", "<eos>"]


def saved(config: ModelConfig, folder: Path, **options) -> Path:
    save_model(random_model(config, dtype=torch.float32), folder / "ours", **options)
    return folder / "ours"


def has_a_home(config: ModelConfig) -> bool:
    biased_encoder = config.family == "encoder-decoder" and config.positions == "alibi"
    return config.family != "encoder" and config.residual and not biased_encoder


@settings(max_examples=25, phases=[Phase.generate])
@given(config=configs())
def test_any_configuration_is_exported_with_a_certificate_or_refused(config: ModelConfig):
    with TemporaryDirectory() as name:
        folder = Path(name)
        ours = saved(config, folder)
        if has_a_home(config):
            certificate = export_ctranslate2(ours, folder / "theirs")
            assert certificate.largest_difference < 1e-4
            assert certificate.n_tokens > 50
            assert json.loads((folder / "theirs" / "parity.json").read_text())["agrees"]
            return
        with pytest.raises(ConfigError, match="has no home in CTranslate2"):
            export_ctranslate2(ours, folder / "theirs")
        assert [path.name for path in folder.iterdir()] == ["ours"]


@pytest.mark.parametrize("config", [SMALL, DECODER], ids=lambda config: config.family)
@pytest.mark.parametrize("max_length", [1, 2, 3])
def test_even_a_model_of_hardly_any_length(config: ModelConfig, max_length: int, tmp_path: Path):
    ours = saved(replace(config, max_length=max_length), tmp_path)
    assert export_ctranslate2(ours, tmp_path / "theirs").n_tokens > 0


@pytest.mark.parametrize("width", [1, 3])
def test_its_beams_write_what_ours_write(width: int, tmp_path: Path, tokenizer: Path):
    """By the tokenizer that lies beside the weights, as the guide shows it."""
    saved(SMALL, tmp_path, tokenizer=tokenizer)
    out = tmp_path / "theirs"
    command = ["export", str(tmp_path / "ours"), str(out), "--to", "ctranslate2"]
    assert main(command) == 0
    library = Tokenizer.from_file(str(out / "tokenizer.json"))
    library.encode_special_tokens = True
    translator = ctranslate2.Translator(str(out))
    results = translator.translate_batch(
        [library.encode(line).tokens for line in LINES],
        beam_size=width,
        min_decoding_length=0,
        max_decoding_length=12,
    )
    theirs = [
        library.decode([library.token_to_id(token) for token in result.hypotheses[0]])
        for result in results
    ]
    opened = open_folder(tmp_path / "ours")
    beam = None if width == 1 else BeamConfig(width=width)
    ours = translate_lines(
        opened.translator,
        opened.source,
        opened.target,
        LINES,
        config=opened.decode_config(12),
        beam=beam,
    )
    assert theirs == ours


def test_each_side_may_have_a_tokenizer_of_its_own(
    tmp_path: Path, tokenizer: Path, capsys: pytest.CaptureFixture[str]
):
    for side in ("source", "target"):
        content = (tokenizer / "tokenizer.json").read_bytes()
        (tmp_path / f"tokenizer.{side}.json").write_bytes(content)
    ours = saved(replace(SMALL, target_vocab_size=300), tmp_path, tokenizer=tmp_path)
    assert main(["export", str(ours), str(tmp_path / "theirs"), "--to", "ctranslate2"]) == 0
    assert "missing" not in capsys.readouterr().out
    names = {path.name for path in (tmp_path / "theirs").iterdir()}
    assert {"tokenizer.source.json", "tokenizer.target.json"} < names


def swapped(theirs, *ours):
    return fill_linear(theirs, *(ours[::-1] if len(ours) == 3 else ours))


def moved(tensor):
    return array(tensor.roll(1, 0) if tuple(tensor.shape) == (40, 24) else tensor)


fill_linear, array = specification._fill_linear, specification._array


@pytest.mark.parametrize(
    ("name", "defect"), [("_fill_linear", swapped), ("_array", moved)], ids=["swapped", "moved"]
)
@pytest.mark.parametrize("config", [SMALL, DECODER], ids=lambda config: config.family)
def test_a_folder_that_computes_something_else_is_not_kept(
    config: ModelConfig, name: str, defect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    ours = saved(config, tmp_path)
    monkeypatch.setattr(specification, name, defect)
    with pytest.raises(FolderError, match="CTranslate2 just written differs from the model"):
        export_ctranslate2(ours, tmp_path / "theirs")
    assert [path.name for path in tmp_path.iterdir()] == ["ours"]


@pytest.mark.parametrize("role", ["eos", "decoder_start"])
def test_a_model_without_an_end_or_a_start_is_refused(role: str, tmp_path: Path):
    ours = saved(SMALL, tmp_path, ids=TokenIds(**{role: None}))
    with pytest.raises(ConfigError, match=rf"tokens\.{role}=None must be a token"):
        export_ctranslate2(ours, tmp_path / "theirs")


def test_a_check_that_was_left_out_is_not_called_a_proof(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    ours = saved(DECODER, tmp_path)
    out = str(tmp_path / "theirs")
    assert main(["export", str(ours), out, "--to", "ctranslate2", "--no-check"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"wrote     {out}: CTranslate2, TransformerDecoderSpec",
        "compared  nothing: the check was left out, as asked",
        "unproven  that both compute the same; parity.json says so too",
        f"missing   a tokenizer: {ours} has none",
    ]


def test_without_the_library_it_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    ours = saved(SMALL, tmp_path)
    monkeypatch.setitem(sys.modules, "ctranslate2", None)  # as if it were not installed
    assert main(["export", str(ours), str(tmp_path / "theirs"), "--to", "ctranslate2"]) == 2
    assert "pip install 'clearhead[serve]'" in capsys.readouterr().err
    assert not (tmp_path / "theirs").exists()
