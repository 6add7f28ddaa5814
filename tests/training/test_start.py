"""A run can begin with the weights of a model folder, if they mean the same in it."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from clearhead.config import Recipe, load_recipe, recipe_toml
from clearhead.data.corpus import Corpus
from clearhead.errors import ClearheadError
from clearhead.interop.model_folder import save_model
from clearhead.models import build_model
from clearhead.training.distributed import Ranks, objective_of
from clearhead.training.run import Run, fit_model, open_run
from tests.training.conftest import make_text
from tests.training.small import TEXT, digest, go, with_model, with_train


@pytest.fixture
def start(text: Corpus, tmp_path: Path) -> Path:
    """The folder of a model that no seed of these tests gives."""
    save_model(
        build_model(fit_model(TEXT, text), seed=99), tmp_path / "start", tokenizer=text.folder
    )
    return tmp_path / "start"


def opened(recipe: Recipe, corpus: Corpus, folder: Path) -> Run:
    return open_run(recipe, corpus, folder, Ranks(), lambda _: None)


def test_a_new_run_has_the_weights_of_the_folder(text: Corpus, start: Path, tmp_path: Path):
    recipe = with_train(TEXT, start_from=str(start), ema=0.9)
    wanted = digest(build_model(fit_model(TEXT, text), seed=99))
    run = opened(with_model(recipe, p_dropout=0.5), text, tmp_path / "run")
    assert digest(objective_of(run.objective).model) == wanted
    assert run.ema is not None
    for name, parameter in objective_of(run.objective).named_parameters():
        assert run.ema[name].equal(parameter)
    plain = opened(TEXT, text, tmp_path / "plain")
    assert digest(objective_of(plain.objective).model) != wanted


def test_a_run_that_goes_on_goes_on_from_its_checkpoint(text: Corpus, start: Path, tmp_path: Path):
    recipe = with_train(TEXT, start_from=str(start), steps=6)
    whole = go(recipe, text, tmp_path / "whole")
    assert f"starting from the weights of {start}" in whole.said
    go(with_train(recipe, steps=3), text, tmp_path / "pieces")
    shutil.rmtree(start)  # it is not needed any more
    pieces = go(recipe, text, tmp_path / "pieces")
    assert pieces.lines == whole.lines
    assert digest(pieces.run.objective) == digest(whole.run.objective)


def test_the_folder_stands_in_the_recipe_and_null_takes_it_away(start: Path, tmp_path: Path):
    path = tmp_path / "mine.toml"
    path.write_text(recipe_toml(with_train(TEXT, start_from=str(start))), encoding="utf-8")
    assert load_recipe(str(path)).train.start_from == str(start)
    assert load_recipe(str(path), [("train.start_from", "null")]).train.start_from is None


def test_another_shape_is_refused_with_what_differs(text: Corpus, start: Path, tmp_path: Path):
    recipe = with_model(with_train(TEXT, start_from=str(start)), d_ff=30, n_layers=1)
    message = r"another shape: n_layers is 2 there and 1 here; d_ff is 24 there and 30 here; write"
    with pytest.raises(ClearheadError, match=message):
        opened(recipe, text, tmp_path / "run")


def test_another_tokenizer_is_refused_with_how_to_use_the_right_one(start: Path, tmp_path: Path):
    other = make_text(tmp_path / "other", n=31)
    recipe = with_train(TEXT, start_from=str(start))
    message = r"tokenizer\.json is not that of .*other words; .*data\.tokenizer_file='.*start/tok"
    with pytest.raises(ClearheadError, match=message):
        opened(recipe, other, tmp_path / "run")


def test_a_folder_that_is_not_there_is_named(text: Corpus, tmp_path: Path):
    recipe = with_train(replace(TEXT), start_from=str(tmp_path / "none"))
    with pytest.raises(ClearheadError, match=r"train\.start_from='.*none' is not a folder; name"):
        opened(recipe, text, tmp_path / "run")
