"""What CTranslate2 opens computes what ours does, or is not written."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import ctranslate2
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from clearhead.cli import main
from clearhead.cli.folders import open_folder
from clearhead.config import ModelConfig
from clearhead.config.model import FeedForwardKind, Norm, PositionKind
from clearhead.decoding import BeamConfig, DecodeConfig, greedy
from clearhead.errors import ConfigError, FolderError
from clearhead.evaluation.translation import translate_lines
from clearhead.interop.ctranslate2 import specification
from clearhead.interop.ctranslate2.exporting import export_ctranslate2
from clearhead.interop.model_folder import TokenIds, load_model, save_model
from clearhead.models import CausalLM
from clearhead.text.train import train_bpe
from tests.drawing import configs, random_model

SMALL = ModelConfig(vocab_size=300, d_model=24, n_layers=2, n_heads=4, d_ff=31, max_length=40)
DECODER = replace(SMALL, family="decoder")
LINES = ["hello world", "a", "你好，世界", "hello there, hello world, hello hello", "<eos>"]


def saved(config: ModelConfig, folder: Path, **options) -> Path:
    save_model(random_model(config, dtype=torch.float32), folder / "ours", **options)
    return folder / "ours"


def positions_of(family: str) -> list[str]:
    """ALiBi has no home in an encoder there."""
    return [p for p in get_args(PositionKind) if (family, p) != ("encoder-decoder", "alibi")]


@pytest.mark.parametrize(
    ("family", "positions"),
    [(f, p) for f in ("encoder-decoder", "decoder") for p in positions_of(f)],
)
@settings(max_examples=4, phases=[Phase.generate])
@given(data=st.data())
def test_every_option_is_exported_with_a_certificate(family: str, positions: str, data):
    config = data.draw(configs(family=family, positions=positions, residual=True))
    with TemporaryDirectory() as name:
        folder = Path(name)
        certificate = export_ctranslate2(saved(config, folder), folder / "theirs")
        assert certificate.largest_difference < 5e-5
        assert certificate.n_tokens > 50
        assert json.loads((folder / "theirs" / "parity.json").read_text())["agrees"]


@pytest.mark.parametrize("feed_forward", get_args(FeedForwardKind))
@pytest.mark.parametrize("norm", get_args(Norm))
def test_every_network_and_norm_with_an_eps_that_shows(
    feed_forward: str, norm: str, tmp_path: Path
):
    config = replace(SMALL, feed_forward=feed_forward, norm=norm, norm_eps=0.1)
    certificate = export_ctranslate2(saved(config, tmp_path), tmp_path / "theirs")
    assert certificate.largest_difference < 5e-5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_in_half_precision_go_as_they_are(dtype: torch.dtype, tmp_path: Path):
    save_model(random_model(SMALL, dtype=dtype), tmp_path / "ours")
    certificate = export_ctranslate2(tmp_path / "ours", tmp_path / "theirs")
    assert certificate.largest_difference < 5e-5


@pytest.mark.parametrize(
    "changes", [{"family": "encoder"}, {"residual": False}, {"positions": "alibi"}]
)
def test_what_has_no_home_there_is_refused(changes: dict[str, Any], tmp_path: Path):
    ours = saved(replace(SMALL, **changes), tmp_path)
    with pytest.raises(ConfigError, match="has no home in CTranslate2") as error:
        export_ctranslate2(ours, tmp_path / "theirs")
    assert {error.value.field} == changes.keys()
    assert [path.name for path in tmp_path.iterdir()] == ["ours"]


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
    certificate = export_ctranslate2(tmp_path / "ours", out)
    assert certificate.lines(out) == (
        f"wrote     {out}: CTranslate2, TransformerSpec",
        f"compared  {certificate.n_tokens} tokens with ctranslate2 {ctranslate2.__version__}: "
        "random, of several lengths, the longest, written by itself",
        "agree     largest log probability difference "
        f"{certificate.largest_difference:.1e}, limit 1e-04",
    )
    library = Tokenizer.from_file(str(out / "tokenizer.json"))
    library.encode_special_tokens = True
    translator = ctranslate2.Translator(str(out), intra_threads=1)
    results = translator.translate_batch(
        [library.encode(line, add_special_tokens=False).tokens for line in LINES],
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


def test_a_decoder_goes_on_as_ours_does(tmp_path: Path):
    ours = saved(DECODER, tmp_path)
    export_ctranslate2(ours, tmp_path / "theirs")
    prompts = [[7, 8, 9], [10, 11, 12]]
    generator = ctranslate2.Generator(str(tmp_path / "theirs"), intra_threads=1)
    results = generator.generate_batch(
        [[str(token) for token in prompt] for prompt in prompts],  # names without a tokenizer
        max_length=12,
        include_prompt_in_result=False,
    )
    model = load_model(ours)
    assert isinstance(model, CausalLM)
    texts = greedy(model, prompts, DecodeConfig(max_new=12, eos_id=2))
    assert [result.sequences_ids[0] for result in results] == [text.tokens for text in texts]


def two_tokenizers(folder: Path) -> None:
    for side, text in (("source", "ein Hund läuft im Park"), ("target", "two dogs run away")):
        train_bpe([text * 3], 265).library.save(str(folder / f"tokenizer.{side}.json"))


def test_each_side_may_have_a_tokenizer_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    two_tokenizers(tmp_path)
    config = replace(SMALL, vocab_size=265, target_vocab_size=270)
    ours, out = saved(config, tmp_path, tokenizer=tmp_path), tmp_path / "theirs"
    assert main(["export", str(ours), str(out), "--to", "ctranslate2"]) == 0
    assert "missing" not in capsys.readouterr().out
    for side, size in (("source", 265), ("target", 270)):
        library = Tokenizer.from_file(str(out / f"tokenizer.{side}.json"))
        names = json.loads((out / f"{side}_vocabulary.json").read_text(encoding="utf-8"))
        assert len(names) == size
        assert names[:265] == [library.id_to_token(index) for index in range(265)]


def test_an_end_with_two_names_is_refused(tmp_path: Path):
    two_tokenizers(tmp_path)
    path = tmp_path / "tokenizer.source.json"
    path.write_text(path.read_text(encoding="utf-8").replace("<eos>", "</s>"), encoding="utf-8")
    config = replace(SMALL, vocab_size=265, target_vocab_size=265)
    ours = saved(config, tmp_path, tokenizer=tmp_path)
    with pytest.raises(ConfigError, match=r"tokens\.eos=2 must have one name on both sides"):
        export_ctranslate2(ours, tmp_path / "theirs")


def test_an_export_leaves_the_number_of_threads_alone(tmp_path: Path):
    export_ctranslate2(saved(SMALL, tmp_path), tmp_path / "theirs")
    assert torch.get_num_threads() == 1  # as tests/conftest.py sets it


def swapped(theirs, *ours):
    return fill_linear(theirs, *(ours[::-1] if len(ours) == 3 else ours))


def moved(tensor):
    return array(tensor.roll(1, 0) if tuple(tensor.shape) == (40, 24) else tensor)


fill_linear, array = specification._fill_linear, specification._array
DEFECTS = {
    "swapped": ("_fill_linear", swapped),
    "moved": ("_array", moved),
    "another activation": ("ACTIVATIONS", {"relu": "SWISH"}),
}


@pytest.mark.parametrize(("name", "defect"), DEFECTS.values(), ids=DEFECTS)
@pytest.mark.parametrize("config", [SMALL, DECODER], ids=lambda config: config.family)
def test_a_folder_that_computes_something_else_is_not_kept(
    config: ModelConfig, name: str, defect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    ours = saved(config, tmp_path)
    monkeypatch.setattr(specification, name, defect)
    with pytest.raises(FolderError, match="CTranslate2 folder just written differs from the model"):
        export_ctranslate2(ours, tmp_path / "theirs")
    assert [path.name for path in tmp_path.iterdir()] == ["ours"]


@pytest.mark.parametrize(
    ("config", "role"), [(SMALL, "eos"), (SMALL, "decoder_start"), (DECODER, "eos")]
)
def test_a_model_without_an_end_or_a_start_is_refused(
    config: ModelConfig, role: str, tmp_path: Path
):
    ours = saved(config, tmp_path, ids=TokenIds(**{role: None}))
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
