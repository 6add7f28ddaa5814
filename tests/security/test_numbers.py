"""Weights that are NaN, infinite or far too large: a refusal, never an answer."""

import json
import math
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import clearhead
from clearhead.cli import main
from clearhead.config import ModelConfig
from clearhead.errors import ClearheadError, FolderError, ModelError
from clearhead.evaluation.perplexity import Perplexity
from clearhead.interop.labels import Labels, write_labels
from clearhead.interop.model_folder import TokenIds, save_model
from clearhead.models import build_model
from clearhead.models.initialise import initialise
from clearhead.text.train import train_bpe

SPECIAL = ("<pad>", "<bos>", "<eos>", "<mask>", "good", "bad")


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    tokenizer = train_bpe(["aa bb cc dd"] * 9, 290, special_tokens=SPECIAL)
    (folder / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    sizes = {"d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 32, "max_length": 40, "pad_id": 0}
    for family in ("decoder", "encoder", "encoder-decoder"):
        model = build_model(ModelConfig(family=family, vocab_size=tokenizer.vocab_size, **sizes))
        initialise(model, 1)
        save_model(model, folder / family, ids=TokenIds(), tokenizer=folder)
    write_labels(folder / "encoder", Labels(mask=3, ids={"good": 4, "bad": 5}))
    return folder


def fill(folder: Path, change: Callable[[np.ndarray], None]) -> None:
    """Changes the numbers of all weights."""
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    (length,) = struct.unpack("<Q", whole[:8])
    numbers = np.frombuffer(whole[8 + length :], "<f4").copy()
    change(numbers)
    path.write_bytes(whole[: 8 + length] + numbers.tobytes())


def one_nan(numbers: np.ndarray) -> None:
    numbers[len(numbers) // 2] = math.nan


def one_infinite(numbers: np.ndarray) -> None:
    numbers[7] = -math.inf


def huge(numbers: np.ndarray) -> None:
    """Finite, but their products are not."""
    numbers[:] = np.where(numbers >= 0, 3e38, -3e38)


DAMAGES = {"one NaN": one_nan, "one infinite": one_infinite, "huge": huge}
VERBS = {
    "generate": ("decoder", ["--input", "{in}"]),
    "generate, shown": ("decoder", ["--prompt", "aa"]),
    "generate, greedy": ("decoder", ["--input", "{in}", "--greedy"]),
    "generate, ctranslate2": (
        "decoder",
        ["--input", "{in}", "--greedy", "--engine", "ctranslate2", "--engine-folder", "{engine}"],
    ),
    "translate": ("encoder-decoder", ["--input", "{in}"]),
    "translate, greedy": ("encoder-decoder", ["--input", "{in}", "--beam", "1"]),
    "translate, ctranslate2": (
        "encoder-decoder",
        ["--input", "{in}", "--engine", "ctranslate2", "--engine-folder", "{engine}"],
    ),
    "classify": ("encoder", ["--input", "{in}"]),
    "score": ("decoder", ["--input", "{in}"]),
    "see": ("decoder", ["aa bb"]),
    "see, encoder": ("encoder", ["aa bb"]),
    "evaluate": ("decoder", ["--text", "{in}"]),
    "evaluate, exact": (
        "encoder-decoder",
        ["--source", "{in}", "--reference", "{other}", "--exact"],
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", VERBS)
def test_no_verb_answers_with_numbers_that_are_not_finite(
    name: str, damage: str, honest: Path, tmp_path: Path, capsys
):
    family, arguments = VERBS[name]
    if "ctranslate2" in name:
        pytest.importorskip("ctranslate2")
    folder = tmp_path / family
    folder.mkdir()
    for path in (honest / family).iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    fill(folder, DAMAGES[damage])
    (tmp_path / "in").write_text("aa bb\ncc dd\n")
    (tmp_path / "other").write_text("dd\naa\n")
    places = {"in": tmp_path / "in", "other": tmp_path / "other", "engine": tmp_path / "engine"}
    given = [argument.format(**places) for argument in arguments]
    assert main([name.split(",")[0], str(folder), *given]) == 2
    seen = capsys.readouterr()
    assert "NaN or infinite" in seen.err or "differs from the model" in seen.err, seen.err
    assert not seen.out.strip()


@pytest.mark.parametrize("to", ["huggingface", "ctranslate2", "onnx"])
def test_no_export_of_weights_that_are_not_finite(to: str, honest: Path, tmp_path: Path, capsys):
    pytest.importorskip("transformers" if to == "huggingface" else to)
    folder = tmp_path / "decoder"
    folder.mkdir()
    for path in (honest / "decoder").iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    fill(folder, one_nan)
    assert main(["export", str(folder), "--to", to, str(tmp_path / "out")]) == 2
    assert "NaN or infinite" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_api_raises_and_names_the_tensor(honest: Path, tmp_path: Path):
    folder = tmp_path / "decoder"
    folder.mkdir()
    for path in (honest / "decoder").iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    fill(folder, one_infinite)
    names = json.loads((folder / "model.safetensors").read_bytes()[8:].split(b"}}")[0] + b"}}")
    with pytest.raises(FolderError, match="holds NaN or infinite numbers") as caught:
        clearhead.load(folder)
    assert any(repr(name) in str(caught.value) for name in names)


def test_a_model_that_is_changed_in_memory_gives_no_answer_either(honest: Path):
    model = clearhead.load(honest / "encoder-decoder")
    model.model.tokens.weight.data.fill_(3e38)
    for ask in (
        lambda: model.translate("aa bb"),
        lambda: model.translate("aa bb", beam=1),
        lambda: model.score("aa", "bb"),
        lambda: model.attention("aa bb", "cc"),
    ):
        with pytest.raises(ModelError, match="NaN or infinite"):
            ask()
    assert issubclass(ModelError, ClearheadError)


def test_a_text_that_a_model_finds_impossible_has_an_infinite_perplexity():
    found = Perplexity(nats=1e30, n_tokens=1, n_bytes=1, n_characters=1, n_words=1)
    assert found.per_token == found.per_byte == found.per_character == found.per_word == math.inf
