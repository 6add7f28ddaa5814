"""A run that is broken anywhere and resumed is the unbroken run, to the bit."""

import json
import shutil
from dataclasses import fields, replace
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import torch

from clearhead.config import Recipe
from clearhead.config.recipe import SECTIONS
from clearhead.data.corpus import Corpus
from clearhead.errors import ClearheadError, DataError
from clearhead.files import folder_beside
from clearhead.training.beforehand import check_space
from clearhead.training.changes import RULES, check_changes, recipe_facts, rule_for
from clearhead.training.checkpoint import MANIFEST, CheckpointError
from clearhead.training.report import NEW_MODEL
from tests.drawing import draws
from tests.training.conftest import make_text
from tests.training.small import PAIRS, TEXT, digest, go, with_model, with_train

RECIPES = {"pairs": PAIRS, "text": TEXT}


@pytest.fixture(params=[pytest.param("pairs", marks=pytest.mark.slow), "text"])
def recipe(request) -> Recipe:
    return RECIPES[request.param]


@pytest.fixture
def corpus(recipe: Recipe, pairs: Corpus, text: Corpus) -> Corpus:
    return {"pairs": pairs, "text": text}[recipe.name]


def test_closing_and_opening_after_every_step_changes_nothing(
    recipe: Recipe, corpus: Corpus, tmp_path: Path
):
    steps = draws(10, nightly=30)
    whole = go(with_train(recipe, steps=steps), corpus, tmp_path / "whole")
    assert len(whole.lines) == steps and whole.ending.finished
    for step in range(1, steps + 1):
        torch.manual_seed(1000 + step)  # whatever else the process has drawn
        piece = go(with_train(recipe, steps=step, keep=2), corpus, tmp_path / "pieces")
        assert piece.run.state.step == step
    assert piece.lines == whole.lines
    assert digest(piece.run.objective) == digest(whole.run.objective)
    kept = piece.run.checkpoints.steps()
    assert kept == [steps - 1, steps]


@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer": "adafactor", "lr": 0.01},
        {"optimizer": "muon", "lr": 0.01},
        {"ema": 0.9, "validate_every": 4, "publish": "best"},
        {"precision": "bf16", "recompute": True, "loss_chunk": 16},
        {"async_save": True, "schedule": "wsd", "decay_steps": 4},
        {"workers": 2},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_every_option_resumes_exactly(settings: dict, text: Corpus, tmp_path: Path):
    recipe = with_train(TEXT, steps=10, **settings)
    whole = go(recipe, text, tmp_path / "whole")
    for stop in (5, 8, 10):
        broken = with_train(recipe, save_every=3)
        # Stopped by the step and not by the recipe's end, which some schedules depend on.
        piece = go(broken, text, tmp_path / "pieces", before=stop_after(stop))
    assert piece.lines == whole.lines
    assert digest(piece.run.objective) == digest(whole.run.objective)
    if whole.run.ema is not None:
        assert piece.run.ema is not None
        for name, tensor in whole.run.ema.items():
            assert torch.equal(piece.run.ema[name], tensor)


def stop_after(step: int):
    """As a signal would: at the end of a step that has begun."""

    def arrange(run) -> None:
        beat = type(run.ranks).beat

        class Stopping(type(run.ranks)):
            def beat(self, current: int) -> None:
                beat(self, current)
                self.__dict__["now"] = current

            def any(self, flag: bool) -> bool:
                return flag or (self.__dict__["now"] >= step and step < run.recipe.train.steps)

        run.ranks = Stopping(**vars(run.ranks))

    return arrange


def test_a_run_that_resumes_needs_no_space_for_the_checkpoints_that_it_has(
    text: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    recipe = with_train(TEXT, steps=4, keep=3)
    run = go(recipe, text, tmp_path / "run").run
    one = 3 * sum(parameter.nbytes for parameter in run.objective.parameters())
    free = shutil.disk_usage(tmp_path)._replace(free=int(2.8 * one))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: free)
    check_space(run.folder, run.objective, run.recipe.train)
    shutil.rmtree(tmp_path / "run/checkpoints")
    with pytest.raises(ClearheadError, match="more for 5 checkpoints and the model; free some"):
        check_space(run.folder, run.objective, run.recipe.train)


def test_what_a_killed_run_left_unfinished_takes_no_space(text: Corpus, tmp_path: Path):
    run = go(with_train(TEXT, steps=2), text, tmp_path / "run").run
    for name in ("checkpoints/.step-00000009.unfinished", "..model.new.unfinished-abcd1234"):
        (tmp_path / "run" / name).mkdir()
        (tmp_path / "run" / name / "weights").write_bytes(bytes(9))
    check_space(run.folder, run.objective, run.recipe.train)
    left = [*(tmp_path / "run/checkpoints").iterdir(), *(tmp_path / "run").iterdir()]
    assert left and not [path for path in left if "unfinished" in path.name]
    with folder_beside(tmp_path / "run" / NEW_MODEL) as being_written:
        check_space(run.folder, run.objective, run.recipe.train)
        assert being_written.is_dir()


@pytest.mark.slow
def test_best_and_patience_survive(text: Corpus, tmp_path: Path):
    recipe = with_train(TEXT, steps=60, lr=0.5, validate_every=3, patience=3, save_every=2)
    whole = go(recipe, text, tmp_path / "whole")
    assert "3 validations without a new best" in whole.ending.reason
    assert whole.run.state.step < 60
    for stop in (4, 8, 13, 60):
        piece = go(recipe, text, tmp_path / "pieces", before=stop_after(stop))
    assert replace(piece.run.state, seconds=0.0) == replace(whole.run.state, seconds=0.0)
    assert piece.lines == whole.lines
    again = go(recipe, text, tmp_path / "pieces")
    assert again.ending == whole.ending, "a run that has ended stays ended"


def test_the_best_checkpoint_is_kept_while_others_go(text: Corpus, tmp_path: Path):
    recipe = with_train(TEXT, steps=12, validate_every=2, save_every=2, keep=1)
    values = iter([5.0, 1.0, 4.0, 3.0, 2.0, 6.0])
    recipe = with_train(recipe, metric="mine")
    trained = go(recipe, text, tmp_path / "run", measure=lambda model: {"mine": next(values)})
    assert (trained.run.state.best, trained.run.state.best_step) == (1.0, 4)
    assert trained.run.checkpoints.steps() == [4, 12]


def test_a_new_best_is_saved_at_once(text: Corpus, tmp_path: Path):
    values = iter([3.0, 1.0, 2.0])
    recipe = with_train(TEXT, steps=9, validate_every=3, save_every=0, metric="mine", keep=1)
    trained = go(recipe, text, tmp_path / "run", measure=lambda model: {"mine": next(values)})
    assert trained.run.checkpoints.steps() == [6, 9]


def test_pruning_never_takes_the_checkpoint_just_written(text: Corpus, tmp_path: Path):
    """Damaged ones with higher numbers are not the newest."""
    go(with_train(TEXT, steps=6, save_every=2, keep=3), text, tmp_path / "run")
    for step in (4, 6):
        flip_a_bit(tmp_path / f"run/checkpoints/step-{step:08}/__0_0.distcp", 99)
    again = go(with_train(TEXT, steps=3, keep=1), text, tmp_path / "run")
    assert again.run.checkpoints.steps() == [3]
    assert again.run.checkpoints.verified(3)[0] is not None


def test_a_folder_of_ones_own_among_the_checkpoints_is_left_alone(text: Corpus, tmp_path: Path):
    trained = go(with_train(TEXT, steps=1), text, tmp_path / "run")
    (tmp_path / "run/checkpoints/step-00000001-good").mkdir()
    assert trained.run.checkpoints.steps() == [1]


def test_saving_before_the_first_update_changes_nothing(text: Corpus, tmp_path: Path):
    """A first step that is skipped leaves the optimizer as it was made."""
    recipe = with_train(TEXT, steps=5, on_nan="skip")
    saved, unsaved = (
        go(with_train(recipe, save_every=n), text, tmp_path / str(n), before=spoil_first_step)
        for n in (1, 0)
    )
    assert saved.lines == unsaved.lines
    assert digest(saved.run.objective) == digest(unsaved.run.objective)


def spoil_first_step(run) -> None:
    run.objective.register_forward_hook(
        lambda module, inputs, loss: loss * (torch.nan if run.state.step == 0 else 1.0)
    )


def test_a_damaged_checkpoint_is_passed_over(text: Corpus, tmp_path: Path):
    recipe = with_train(TEXT, steps=9, save_every=3)
    whole = go(recipe, text, tmp_path / "run")
    flip_a_bit(tmp_path / "run/checkpoints/step-00000009/__0_0.distcp", 5000)
    again = go(recipe, text, tmp_path / "run")
    assert "skipping a damaged checkpoint" in again.said[0]
    assert "step-00000009/__0_0.distcp does not have the bytes that were written" in again.said[0]
    assert "resuming after step 6" in again.said[1]
    assert again.lines == whole.lines
    assert digest(again.run.objective) == digest(whole.run.objective)


def test_with_no_whole_checkpoint_left_nothing_is_started_over(text: Corpus, tmp_path: Path):
    go(with_train(TEXT, steps=2, save_every=1), text, tmp_path / "run")
    for path in tmp_path.glob("run/checkpoints/*/manifest.json"):
        flip_a_bit(path, 40)
    with pytest.raises(CheckpointError, match=r"none of the 2 checkpoints .* is complete; restore"):
        go(with_train(TEXT, steps=2, save_every=1), text, tmp_path / "run")


@pytest.mark.parametrize("name", ["__0_0.distcp", ".metadata", "manifest.json", "manifest.sha256"])
def test_a_flipped_bit_or_a_missing_byte_is_found_before_anything_is_read(
    name: str, text: Corpus, tmp_path: Path
):
    trained = go(with_train(TEXT, steps=1), text, tmp_path / "run")
    checkpoints = trained.run.checkpoints
    path = tmp_path / "run/checkpoints/step-00000001" / name
    content = path.read_bytes()
    places = range(0, 8 * len(content), max(1, 8 * len(content) // 60))
    for bit in places:
        flip_a_bit(path, bit)
        assert checkpoints.verified(1)[0] is None, f"bit {bit} of {name}"
        path.write_bytes(content)
    for length in (0, 1, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        assert checkpoints.verified(1)[0] is None, f"{name} cut to {length}"
    path.unlink()
    assert checkpoints.verified(1)[0] is None
    path.write_bytes(content)
    assert checkpoints.verified(1)[0] is not None


def flip_a_bit(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def test_changed_data_is_refused_with_what_changed(text: Corpus, tmp_path: Path):
    go(with_train(TEXT, steps=2), text, tmp_path / "run")
    changed = make_text(tmp_path / "other", n=241)
    with pytest.raises(DataError, match=r"different batches: .*the data was \w{12}…, is \w{12}…"):
        go(with_train(TEXT, steps=4), changed, tmp_path / "run")


def test_changed_versions_are_told(text: Corpus, tmp_path: Path, monkeypatch):
    go(with_train(TEXT, steps=2), text, tmp_path / "run")
    monkeypatch.setattr(
        "clearhead.training.run.versions", lambda: {"torch": "3.0", "python": "3.99"}
    )
    again = go(with_train(TEXT, steps=3), text, tmp_path / "run")
    told = f"torch was {torch.__version__[:4]}"
    assert any(told in line and "is 3.0" in line for line in again.said)


def test_the_table_of_changes_has_a_rule_for_every_field_and_no_other():
    keys = [f"{section}.{field.name}" for section, of in SECTIONS.items() for field in fields(of)]
    assert all(rule_for(key) in ("refuse", "warn", "allow") for key in keys)
    assert set(RULES) <= {*keys, *SECTIONS}
    assert all(f"train.{field.name}" in RULES for field in fields(SECTIONS["train"]))


def other_value(key: str, value):
    """A value that the field could have had instead."""
    section, name = key.split(".")
    hint = get_type_hints(SECTIONS[section])[name]
    words = [word for word in get_args(hint) if isinstance(word, str)]
    if words:
        return next(word for word in words if word != value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, tuple):
        return (*value, "another")
    return f"{value}-other" if isinstance(value, str) else (value or 0) + 1


@pytest.mark.parametrize(
    "key",
    [f"{section}.{field.name}" for section, of in SECTIONS.items() for field in fields(of)],
)
def test_a_changed_field_is_refused_told_or_allowed_as_the_table_says(key: str):
    section, name = key.split(".")
    before = json.loads(json.dumps(recipe_facts(PAIRS)))
    assert check_changes(before, PAIRS) == []
    now = getattr(getattr(PAIRS, section), name)
    before[section][name] = json.loads(json.dumps(other_value(key, now)))
    match rule_for(key):
        case "refuse":
            with pytest.raises(ClearheadError, match=rf"{key} was .*, is .*restore .*folder=…"):
                check_changes(before, PAIRS)
        case "warn":
            (warning,) = check_changes(before, PAIRS)
            assert warning.startswith(f"{key} was ")
        case "allow":
            assert check_changes(before, PAIRS) == []


def test_a_changed_recipe_is_refused_or_told_by_a_real_run(text: Corpus, tmp_path: Path):
    go(with_train(TEXT, steps=2), text, tmp_path / "run")
    with pytest.raises(ClearheadError, match=r"model\.d_ff was 24, is 30"):
        go(with_model(TEXT, d_ff=30), text, tmp_path / "run")
    again = go(with_train(TEXT, steps=3, lr=1e-5), text, tmp_path / "run")
    assert any("from here on train.lr was 0.003, is 1e-05" in line for line in again.said)


def test_a_manifest_tells_everything_about_its_checkpoint(text: Corpus, tmp_path: Path):
    go(with_train(TEXT, steps=2), text, tmp_path / "run")
    manifest = tmp_path / "run/checkpoints/step-00000002" / MANIFEST
    facts = json.loads(manifest.read_text(encoding="utf-8"))
    assert {"state", "loader", "recipe", "versions", "world", "files"} <= facts.keys()
    assert facts["loader"]["data"] == text.manifest.fingerprint
    assert facts["versions"].keys() >= {"torch", "clearhead", "python"}
