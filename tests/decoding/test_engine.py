"""The engine ctranslate2 gives the texts that ours gives, from a folder that it makes itself."""

import io
import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("ctranslate2", reason="needs the extra serve")

import clearhead as ch
from clearhead.cli import main
from clearhead.config import (
    BeamConfig,
    Choice,
    DecodeConfig,
    GenerateConfig,
    ModelConfig,
    TranslateConfig,
)
from clearhead.decoding.engine import (
    CTranslate2Engine,
    engine_folder,
    model_hash,
)
from clearhead.decoding.text import OwnEngine, SeededPrompt
from clearhead.errors import ClearheadError, ConfigError, FolderError
from clearhead.interop.model_folder import load_model, save_model
from clearhead.models import CausalLM, Seq2Seq
from clearhead.text.train import train_bpe
from tests.decoding.reference import vivid
from tests.drawing import random_model

GREEDY = GenerateConfig(choice=Choice(temperature=0))
SIZES = {"d_model": 16, "n_heads": 2, "d_ff": 32, "n_layers": 1, "max_length": 40}
LINES = "ein Hund läuft\n\na dog\nthe green grass on the green grass\n你好 ein\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Model folders `mt` and `lm`, and `alibi`, which CTranslate2 cannot hold."""
    import torch

    folder = tmp_path_factory.mktemp("models")
    tokenizer = train_bpe(["ein Hund läuft", "a dog runs on the green grass 你好"] * 9, 300)
    (folder / "tokenizer").mkdir()
    (folder / "tokenizer" / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    for name, options in {
        "mt": {"family": "encoder-decoder"},
        "lm": {"family": "decoder"},
        "alibi": {"family": "encoder-decoder", "positions": "alibi"},
        "no-residual": {"family": "encoder-decoder", "residual": False},
    }.items():
        config = ModelConfig(vocab_size=tokenizer.vocab_size, **SIZES, **options)
        model = vivid(random_model(config, seed=4, dtype=torch.float32))
        save_model(model, folder / name, tokenizer=folder / "tokenizer")
    return folder


@pytest.fixture
def run(monkeypatch, capsys, tmp_path: Path):
    """A command in this process, with a cache directory of its own."""
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path / "cache"))

    def run(*arguments: object, given: str = LINES) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
        return (main([*map(str, arguments)]), *capsys.readouterr())

    return run


@pytest.mark.parametrize(
    "options",
    [
        ("translate", "mt", "--beam", 1),
        ("translate", "mt", "--beam", 3, "--scores"),
        ("translate", "mt", "--n-best", 2, "--length-penalty", "none"),
        ("translate", "mt", "--alpha", 0.5, "--scores"),
        ("generate", "lm", "--greedy"),
    ],
)
def test_both_engines_give_the_same_texts_and_scores(folder: Path, run, options):
    verb, model, *rest = options
    command = (verb, folder / model, "--max-new", 9, *rest)
    own, fast = run(*command), run(*command, "--engine", "ctranslate2")
    assert own[0] == fast[0] == 0
    for mine, theirs in zip(own[1].split("\n"), fast[1].split("\n"), strict=True):
        cells, others = mine.split("\t"), theirs.split("\t")
        assert (cells[0], cells[-1]) == (others[0], others[-1])
        if len(cells) == 3:
            assert float(cells[1]) == pytest.approx(float(others[1]), abs=2e-4)


def test_ends_windows_and_lengths_stop_a_text_as_ours_do(folder: Path, tmp_path: Path):
    for name, sources in (("mt", [[5, 6, 7, 2], [9, 2]]), ("lm", [[5, 6, 7], [9] * 38, [8] * 40])):
        model = load_model(folder / name)
        assert isinstance(model, CausalLM | Seq2Seq)
        engines = OwnEngine(model), CTranslate2Engine(folder / name, folder=tmp_path)
        prompts = [SeededPrompt(tokens, 0) for tokens in sources]
        for max_new in (0, 1, 5, 99):
            config = DecodeConfig(max_new=max_new, window="stop")
            if name == "mt" and max_new == 0:
                continue
            found = [
                engine.translate(sources, config, TranslateConfig(beam=BeamConfig(width=1)))
                if name == "mt"
                else [[x] for x in engine.generate(prompts, config, GREEDY, None)]
                for engine in engines
            ]
            shown = [[(t[0].tokens, t[0].stop) for t in texts] for texts in found]
            assert shown[0] == shown[1]


def test_evaluate_runs_on_it_too(folder: Path, tmp_path: Path, run):
    (tmp_path / "source").write_text("ein Hund\na dog\n", encoding="utf-8")
    files = ("--source", tmp_path / "source", "--max-new", 5, "--beam", 2)
    right = run("translate", folder / "mt", *files[2:], given="ein Hund\na dog\n")[1]
    (tmp_path / "reference").write_text(right, encoding="utf-8")
    command = ("evaluate", folder / "mt", *files, "--reference", tmp_path / "reference", "--exact")
    for precision in ("float32", "int8"):
        status, out, _ = run(*command, "--engine", "ctranslate2", "--precision", precision)
        assert status == 0 and "of 2 lines" in out
        assert precision == "int8" or "100.00%" in out


def test_the_folder_is_made_once_and_again_for_other_weights(folder: Path, tmp_path: Path):
    place = tmp_path / "engines"
    first = engine_folder(folder / "mt", place)
    made = (first / "model.bin").stat().st_mtime_ns
    assert json.loads((first / "parity.json").read_text())["agrees"] is True
    assert engine_folder(folder / "mt", place) == first
    assert (first / "model.bin").stat().st_mtime_ns == made
    assert engine_folder(folder / "lm", place) != first
    changed = tmp_path / "changed"
    save_model(load_model(folder / "mt"), changed)
    assert model_hash(changed) != model_hash(folder / "mt")  # it has no tokenizer


def test_without_the_library_an_engine_says_how_to_get_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    engine_folder(folder / "mt", tmp_path)
    monkeypatch.setitem(sys.modules, "ctranslate2", None)  # as if it were not installed
    with pytest.raises(ClearheadError, match=r"pip install 'clearhead\[serve\]'"):
        engine_folder(folder / "mt", tmp_path)


def test_the_models_own_folder_is_never_looked_into(folder: Path, run):
    status, _, told = run(
        "translate", folder / "mt", "--engine", "ctranslate2",
        "--engine-folder", folder / "mt" / "engine",
    )  # fmt: skip
    assert status == 2 and "is in the model folder" in told


def test_a_folder_without_a_certificate_is_not_used(folder: Path, tmp_path: Path):
    made = engine_folder(folder / "mt", tmp_path)
    (made / "parity.json").write_text('{"agrees": false}')
    with pytest.raises(FolderError, match="has no parity certificate that shows agreement"):
        engine_folder(folder / "mt", tmp_path)


def test_a_place_that_cannot_be_written_says_what_to_do(folder: Path, tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(FolderError, match=r"cannot be made .*engine_folder=…"):
        engine_folder(folder / "mt", tmp_path / "file")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("translate", "alibi"), "positions='alibi'"),
        (("translate", "no-residual"), "residual=False"),
        (("translate", "mt", "--length-penalty", "gnmt"), "--length-penalty gnmt is not supported"),
        (("translate", "mt", "--attention", "a.svg"), "--attention needs the engine"),
        (
            ("generate", "lm"),
            "--temperature 1.0 is not supported by CTranslate2; use --temperature 0",
        ),
        (("generate", "lm", "--greedy", "--only", "yes"), "--only '…' is not supported"),
        (("generate", "lm", "--greedy", "--window", "slide"), "--window slide is not supported"),
        (
            ("generate", "lm", "--greedy", "--repetition-penalty", "2"),
            "--repetition-penalty 2.0 is",
        ),
    ],
)
def test_what_it_cannot_do_is_refused_with_the_remedy(folder: Path, run, options, message):
    verb, model, *rest = options
    status, out, told = run(verb, folder / model, *rest, "--engine", "ctranslate2")
    assert (status, out) == (2, "") and message in told


def test_python_has_the_same_engines(folder: Path, tmp_path: Path):
    there = {"engine": "ctranslate2", "engine_folder": str(tmp_path)}
    lines = LINES.splitlines()
    model, writer = ch.load(folder / "mt"), ch.load(folder / "lm")
    mine = model.translate(lines, max_new=9)
    assert model.translate(lines, max_new=9, **there) == mine and mine[1] == ""
    assert model.translate(lines[0], max_new=9, **there) == mine[0]
    assert len(list(tmp_path.iterdir())) == 1
    greedy = {"max_new": 9, "temperature": 0.0}
    assert writer.generate(lines, **greedy, **there) == writer.generate(lines, **greedy)
    found = model.evaluate(source=lines, reference=mine, exact=True, max_new=9, **there)
    assert found["exact"] == 1
    with pytest.raises(ConfigError, match=r"temperature=1\.0 is not supported by CTranslate2"):
        writer.generate("a dog", **there)
    with pytest.raises(ch.ClearheadError, match=r"engine=.* does not apply to a language"):
        writer.evaluate(text=lines, **there)


def test_a_precision_needs_the_engine_that_has_it(folder: Path, run):
    status, _, told = run("translate", folder / "mt", "--precision", "int8")
    assert status == 2 and "use the engine ctranslate2" in told


def test_groups_and_endless_patience_are_refused(folder: Path, tmp_path: Path):
    engine = CTranslate2Engine(folder / "mt", folder=tmp_path)
    for beam in (BeamConfig(width=4, groups=2, diversity=0.5), BeamConfig(patience=None)):
        with pytest.raises(ConfigError, match="is not supported by CTranslate2"):
            engine.translate([[5, 2]], DecodeConfig(), TranslateConfig(beam=beam))
