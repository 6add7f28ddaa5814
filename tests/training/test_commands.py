"""`clearhead train` and `clearhead runs`, as a user would meet them."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from clearhead.cli import main
from clearhead.config import load_recipe, recipe_toml
from clearhead.data.corpus import Corpus
from clearhead.interop.model_folder import load_model, read_description
from tests.data.small_corpora import make_corpus, write_pairs, write_text
from tests.training.small import PAIRS, TEXT, with_train


def written(recipe, folder: Path) -> str:
    path = folder / f"{recipe.name}.toml"
    path.write_text(recipe_toml(recipe), encoding="utf-8")
    return str(path)


@pytest.fixture
def trained(text: Corpus, tmp_path: Path, monkeypatch, capsys) -> Path:
    monkeypatch.chdir(tmp_path)
    recipe = with_train(TEXT, steps=6, validate_every=3, save_every=3)
    assert main(["train", written(recipe, tmp_path), "--prepared", str(text.folder)]) == 0
    return tmp_path / "runs/text"


def test_a_run_leaves_a_recipe_a_log_numbers_checkpoints_and_a_model(trained: Path, text: Corpus):
    names = {path.name for path in trained.iterdir()}
    assert names == {
        ".lock", "recipe.toml", "text.json", "threads.json", "log.txt", "metrics.jsonl",
        "checkpoints", "model",
    }  # fmt: skip
    again = load_recipe(str(trained / "recipe.toml"))
    assert again.train.steps == 6 and again.model is not None
    model = load_model(trained / "model")
    assert model.config.vocab_size == text.tokenizers["text"].vocab_size
    assert (trained / "model/tokenizer.json").read_bytes() == (
        text.folder / "tokenizer.json"
    ).read_bytes()
    assert read_description(trained / "model").ids.eos == text.tokenizers["text"].eos_id


@pytest.mark.slow
def test_a_finished_run_says_so_and_can_be_made_longer(trained: Path, text: Corpus, capsys):
    where = [str(trained / "recipe.toml"), "--prepared", str(text.folder), "--folder", str(trained)]
    assert main(["train", *where]) == 0
    assert "ended after step 6: the last step of the recipe" in capsys.readouterr().out
    assert main(["train", *where, "--train.steps", "8"]) == 0
    out = capsys.readouterr().out
    assert "from here on train.steps was 6, is 8" in out
    assert "ended after step 8: the last step of the recipe" in out
    assert main(["train", *where, "--train.steps", "7"]) == 0
    assert "ended after step 8: the recipe asks for no more than 7" in capsys.readouterr().out


def test_runs_are_listed_and_drawn(trained: Path, capsys):
    pytest.importorskip("matplotlib", reason="pictures need matplotlib: clearhead[plot]")
    assert main(["runs"]) == 0
    listed = capsys.readouterr().out
    assert "text" in listed and "best at" in listed
    assert main(["runs", str(trained), "--picture", "curve.png"]) == 0
    shown = capsys.readouterr().out
    assert "step 6" in shown and "valid loss" in shown and "└──" in shown
    assert Path("curve.png").read_bytes().startswith(b"\x89PNG")


def test_a_folder_without_runs_says_how_to_make_one(tmp_path: Path, capsys):
    assert main(["runs", str(tmp_path)]) == 2
    assert "holds no run; make a run with: clearhead train RECIPE" in capsys.readouterr().err
    assert main(["runs", str(tmp_path / "none")]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_a_plan_shows_sizes_time_and_the_learning_rate(
    pairs: Corpus, tmp_path: Path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    recipe = written(PAIRS, tmp_path)
    assert main(["train", recipe, "--prepared", str(pairs.folder), "--plan"]) == 0
    out = capsys.readouterr().out
    for words in ("parameters", "optimizer", "tokens/s", "30 steps", "learning rate", "└──"):
        assert words in out
    assert os.listdir(tmp_path) == ["pairs.toml"], "a plan leaves nothing behind"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--model.family", "encoder"], "model.family='encoder' does not fit data.task='pairs'"),
        (["--model.max_length", "5"], "model.max_length=5 must hold the longest sample, which has"),
        (["--train.stepz", "5"], "does not take '--train.stepz'; did you mean '--train.steps'"),
        (["--train.metric", "bleu", "--train.validate_every", "1"], "'bleu' is not one of"),
    ],
)
def test_a_mistake_is_one_line_with_a_remedy(
    changes: list[str], message: str, pairs: Corpus, tmp_path: Path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    recipe = written(PAIRS, tmp_path)
    assert main(["train", recipe, "--prepared", str(pairs.folder), *changes]) == 2
    assert message in capsys.readouterr().err.replace("\n", " ")


def test_a_recipe_must_be_the_one_that_the_data_were_prepared_with(
    text: Corpus, tmp_path: Path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    elsewhere = replace(TEXT.data, train=("/moved/text.txt",))  # the same file by its name
    recipe = written(with_train(replace(TEXT, data=elsewhere), steps=1), tmp_path)
    where = ["--prepared", str(text.folder)]
    assert main(["train", recipe, *where, "--data.vocab_size", "280"]) == 2
    assert "another recipe: data.vocab_size was 300, is 280; restore the settings" in (
        capsys.readouterr().err.replace("\n", " ")
    )
    assert not Path("runs").exists()
    assert main(["train", recipe, *where]) == 0


def test_a_run_is_evaluated_on_its_own_split(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLEARHEAD_DATA", str(tmp_path))
    data = replace(TEXT.data, train=(write_text(tmp_path, 40),), valid=("text.txt",))
    corpus = make_corpus(tmp_path, data)
    recipe = written(with_train(replace(TEXT, data=data), steps=2), tmp_path)
    assert main(["train", recipe, "--prepared", str(corpus.folder)]) == 0
    capsys.readouterr()
    assert main(["evaluate", "runs/text", "--format", "jsonl"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["n_tokens"] == corpus.facts("valid").tokens["text"] - 1  # all but the first
    assert found["n_bytes"] == pytest.approx((tmp_path / "text.txt").stat().st_size, abs=9)
    assert found["split"] == "valid"
    assert main(["evaluate", "runs/text"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("valid of runs/text\nperplexity per token")
    assert "\nbaseline  " in said and "a table of which token follows which" in said
    shutil.rmtree(corpus.folder)
    make_corpus(tmp_path, replace(data, vocab_size=290))  # a table of other tokens says nothing
    assert main(["evaluate", "runs/text"]) == 0
    said = capsys.readouterr().out
    assert "perplexity per token" in said and "baseline" not in said
    own = Path("runs/text/recipe.toml")
    best = own.read_text("utf-8").replace('publish = "last"', 'publish = "best"')
    own.write_text(best.replace("validate_every = 0", "validate_every = 1"), encoding="utf-8")
    assert main(["evaluate", "runs/text"]) == 0
    assert "valid of runs/text, which also chose the weights\n" in capsys.readouterr().out
    assert main(["evaluate", "runs/text", "--split", "test"]) == 2
    assert "have no split 'test'; name one in the recipe" in capsys.readouterr().err


def test_a_translator_is_evaluated_on_its_own_test_set(tmp_path: Path, monkeypatch, capsys):
    pytest.importorskip("sacrebleu", reason="needs the extra eval")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLEARHEAD_DATA", str(tmp_path))
    paths = write_pairs(tmp_path, 30)
    data = replace(PAIRS.data, train=paths, test=paths)
    corpus = make_corpus(tmp_path, data)
    recipe = written(with_train(replace(PAIRS, data=data), steps=2), tmp_path)
    assert main(["train", recipe, "--prepared", str(corpus.folder)]) == 0
    capsys.readouterr()
    options = ["--beam", "1", "--max-new", "4", "--resamples", "0", "--lowercase"]
    assert main(["evaluate", "runs/pairs", *options]) == 0
    own = capsys.readouterr().out
    files = ["--source", paths[0], "--reference", paths[1]]
    assert main(["evaluate", "runs/pairs/model", *files, *options]) == 0
    # The first line says which lines were scored, by the name that each command was given.
    scores, again = (out.split("\n")[1:] for out in (own, capsys.readouterr().out))
    assert scores == again and "case:lc" in own


def test_two_tokenizers_go_into_the_model_folder_and_not_abroad(
    tmp_path: Path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    paths = write_pairs(tmp_path / "text", 80)
    data = replace(PAIRS.data, train=paths, vocabularies="separate", vocab_size=290)
    corpus = make_corpus(tmp_path / "text", data)
    recipe = written(with_train(replace(PAIRS, data=data), steps=2), tmp_path)
    assert main(["train", recipe, "--prepared", str(corpus.folder)]) == 0
    model = load_model(tmp_path / "runs/pairs/model")
    assert model.config.target_vocab_size == corpus.tokenizers["target"].vocab_size
    for name in ("tokenizer.source.json", "tokenizer.target.json"):
        assert (tmp_path / "runs/pairs/model" / name).is_file()
    capsys.readouterr()
    assert main(["export", "runs/pairs", "abroad", "--to", "huggingface", "--no-check"]) == 0
    assert not list((tmp_path / "abroad").glob("tokenizer*"))
    told = capsys.readouterr().out.splitlines()[-1]
    assert told.startswith("missing   a tokenizer: source and target have one each")
    assert 'data.vocabularies = "shared"' in told
