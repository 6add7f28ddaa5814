"""The number of threads is chosen once, kept with the run, and said."""

import json
from pathlib import Path

import pytest
import torch

from clearhead.cli import main
from clearhead.config import recipe_toml
from clearhead.data.corpus import Corpus
from clearhead.errors import ConfigError
from clearhead.training import threads as module
from clearhead.training.distributed import Ranks
from clearhead.training.pace import Pace
from clearhead.training.threads import (
    THREADS,
    candidates,
    choose_threads,
    computing_with,
    free_share,
    pick,
)
from clearhead.training.trials import Trials
from tests.training.small import TEXT, timeless, with_train


def test_the_fewest_threads_that_are_nearly_the_fastest_are_taken():
    assert candidates(64) == [64, 32, 1] and candidates(2) == [2, 1] and candidates(1) == [1]
    assert pick({2: 1.516, 1: 0.114}).threads == 1
    assert pick({2: 0.100, 1: 0.105}).threads == 1
    assert pick({2: 0.100, 1: 0.150}).threads == 2
    assert pick({2: 1.516, 1: 0.114}).why == "since a step takes 0.114 s with 1, 1.516 s with 2"
    assert pick({2: 1.516, 1: 0.114}).compared == "since a step takes 13 times as long with 2"
    assert pick({2: 0.115, 1: 0.114}).compared == "since a step takes about as long with 2"
    assert pick({1: 0.1}).compared == ""


def test_threads_are_chosen_by_real_steps_which_leave_no_trace(text: Corpus, monkeypatch):
    monkeypatch.setattr(module, "TRIED_FOR", 0.01)
    with computing_with(2):
        found = choose_threads(TEXT, text, Ranks())
        assert torch.get_num_threads() == 2
    assert found.threads in (1, 2) and set(found.seconds) == {1, 2}
    assert found.planned == found.seconds[found.threads] > 0


def test_nothing_is_timed_where_there_is_no_choice(text: Corpus, monkeypatch):
    def refuse(*opened):
        raise AssertionError(opened)

    monkeypatch.setattr(module, "open_trial", refuse)
    with computing_with(1):
        assert choose_threads(TEXT, text, Ranks()).threads == 1
    with computing_with(3):
        assert choose_threads(with_train(TEXT, compile=True), text, Ranks()).threads == 3
        assert choose_threads(TEXT, text, Ranks(world=2)).threads == 3


def test_a_run_keeps_its_threads_when_it_resumes(text: Corpus, tmp_path: Path, capsys, monkeypatch):
    monkeypatch.setattr(module, "TRIED_FOR", 0.01)
    recipe, run = tmp_path / "text.toml", tmp_path / "run"
    recipe.write_text(recipe_toml(with_train(TEXT, steps=2)), encoding="utf-8")

    def train(folder: Path, *more: str) -> str:
        where = ["--prepared", str(text.folder), "--folder", str(folder)]
        assert main(["train", str(recipe), *where, *more]) == 0
        return capsys.readouterr().out

    def noted(folder: Path) -> int:
        return json.loads((folder / THREADS).read_text(encoding="utf-8"))["threads"]

    with computing_with(2):
        assert "threads: 2, as given" in train(run, "--threads", "2") and noted(run) == 2
    with computing_with(1):
        assert "threads: 2, as this run began" in train(run, "--train.steps", "4")
        assert torch.get_num_threads() == 1, "the number of the process is restored"
        out = train(run, "--train.steps", "5", "--threads", "1")
        assert "last bits: threads was 2 and is now 1" in out and noted(run) == 1
        assert "last bits" not in train(run, "--train.steps", "6")
    with computing_with(2):  # chosen by trial, and the trial changes no step
        train(tmp_path / "tried", "--train.steps", "3")
        n = noted(tmp_path / "tried")
        train(tmp_path / "given", "--train.steps", "3", "--threads", str(n))
    assert timeless(tmp_path / "tried") == timeless(tmp_path / "given")
    (run / THREADS).write_text('{"threads": 1e9}', encoding="utf-8")  # damaged, or sent by somebody
    train(run, "--train.steps", "7")
    assert noted(run) == torch.get_num_threads()


def test_a_plan_says_with_how_many_threads_it_was_timed(text: Corpus, tmp_path: Path, capsys):
    recipe = tmp_path / "text.toml"
    recipe.write_text(recipe_toml(with_train(TEXT, steps=2)), encoding="utf-8")
    where = [str(recipe), "--prepared", str(text.folder), "--plan"]
    assert main(["train", *where, "--threads", "2"]) == 0
    assert "threads       2, as given" in capsys.readouterr().out
    assert main(["train", *where, "--threads", "0"]) == 2
    assert "of at least 1; leave it out to have the number chosen" in capsys.readouterr().err


def test_a_recipe_says_that_the_machine_is_busy(text: Corpus, monkeypatch):
    trials = Trials(threads=1)
    monkeypatch.setattr("clearhead.training.trials.free_share", lambda: 0.5)
    assert "gets 50% of a core" in trials.reasons[-1]
    monkeypatch.setattr("clearhead.training.trials.free_share", lambda: 0.97)
    assert trials.reasons == ["Threads: 1, as given."]
    trials.choice = pick({4: 0.1, 2: 0.15, 1: 0.25})
    assert trials.reasons == [
        "Threads: 4, since a step takes 2.5 times as long with 1, 1.5 times as long with 2."
    ]
    assert 0 < free_share(0.02) <= 1


def test_steps_that_become_several_times_slower_are_reported_once():
    pace = Pace(0.1)
    said = [pace.after_step(seconds) for seconds in [0.2] * 20 + [0.4] * 40 + [0.1] * 20]
    assert [number for number, text in enumerate(said) if text] == [39]
    assert "0.400 s, 4.0 times as long as planned (0.100 s)" in said[39]
    unplanned = Pace(None)
    said = [unplanned.after_step(seconds) for seconds in [0.1] * 20 + [0.5] * 20]
    assert [number for number, text in enumerate(said) if text] == [39]


def test_wrong_numbers_of_threads_are_refused():
    from clearhead.config.tasks import NewOptions, TrainOptions

    for kind in (TrainOptions, NewOptions):
        with pytest.raises(ConfigError, match="threads=0 must be a whole number of at least 1"):
            kind(threads=0)
