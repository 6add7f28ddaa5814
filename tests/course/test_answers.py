"""Answers that two readers of the course tried, and an author who had not read the checks: what is
wrong fails, what is right passes, however unusual it is. `python -m tests.course.judging` does
the same with others."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from clearhead.course.exercises import EXERCISES, Exercise
from tests.course.judging import BLIND, answer_files, judge, judge_all, unpack
from tools.result import FOLDER

ANSWERS = Path(__file__).parent / "answers"
ROOT = Path(__file__).parent.parent.parent
# The results of exercises 1 to 8, and of 9 to 20: the first run is NAME_first.json.
RESULTS = ("course_answers", "course_answers_later")
# The mistake that each wrong answer is called, where it has a name.
NAMES = {
    "bare_exp": ["bare exp"],
    "replaced_in_text": ["replaced in a string"],
    "denominator_detached": ["sum detached"],
    "no_softmax": ["no softmax"],
    "divided_by_8": ["divided by a constant"],
    "axis_1_and_no_scale": ["softmax over queries", "no scale"],
    "fill_of_20_times_allowed": ["too small a number"],
    "minus_30_added": ["too small a number"],
    "strict_triangle": ["not itself"],
    "strict_triangle_top_left": ["not itself", "top left"],
    "whole_numbers": ["numbers, not a Bool"],
    "view_without_contiguous": ["view without contiguous"],
    "integer_division": ["integer division"],
    "statistics_detached": ["mean and variance detached"],
    "squares_minus_square": ["E[x²] − E[x]²"],
    "std_plus_eps": ["n - 1", "eps outside the root"],
    "three_mistakes": ["n - 1", "eps outside the root"],
    "mean_of_everything": ["over everything"],
    "sublayer_twice": ["called twice"],
    "matrices_swapped": ["query and key matrices swapped"],
    "residual_inside": ["residual inside"],
    "gelu": ["GELU for ReLU"],
    "attention_twice": ["attention runs twice"],
    "log_of_softmax": ["log of softmax"],
    "mean_and_pads_counted": ["mean instead of sum", "pads counted"],
    "overlap": ["token used twice"],
    "most_common": ["first of equals"],
    "types_not_tokens": ["each word once"],
    "longest_piece": ["longest match"],
    "rotate_half": ["halves"],
    "arange": ["places counted"],
    "repeat": ["heads in turn"],
    "all_the_heads": ["query heads counted"],
    "l2": ["decay in the gradient"],
    "crossing_token_cut": ["without the token that reaches p"],
    "multinomial": ["numbers of its own"],
    "embedding_as_it_comes": ["table from N(0, 1)"],
    "tril": ["top left"],
    "usual": ["mean of means"],
    "same_token": ["at the same token"],
}


def result(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


FIRST_RUNS = {name: result(f"{name}_first") for name in RESULTS}


def ids(value: object) -> str:
    return value.stem if isinstance(value, Path) else getattr(value, "name", str(value))


@pytest.mark.parametrize(("exercise", "kind", "file"), answer_files(ANSWERS), ids=ids)
def test_wrong_answers_fail_and_right_ones_pass(
    exercise: Exercise, kind: str, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if "einops" in file.read_text(encoding="utf-8"):
        pytest.importorskip("einops")
    monkeypatch.chdir(tmp_path)
    verdict = judge(exercise, file)
    assert verdict.complete is (kind == "right"), verdict
    assert verdict.mistakes == (NAMES.get(file.stem, []) if kind == "wrong" else []), verdict


@pytest.fixture(scope="module")
def blind(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(BLIND, tmp_path_factory.mktemp("blind"))


@pytest.mark.parametrize(
    "name", [name for first in FIRST_RUNS.values() for name in first["misjudged"]]
)
def test_what_was_misjudged_at_first_is_no_longer(name: str, blind: Path):
    topic, kind, _ = name.split("/")
    exercise = next(each for each in EXERCISES if each.name == topic)
    verdict = judge(exercise, blind / f"{name}.py")
    assert verdict.complete is (kind == "right"), verdict


@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_page_gives_both_counts_as_they_were_measured(language: str, name: str):
    page = (ROOT / f"docs/{language}/course/index.md").read_text(encoding="utf-8")
    line = next(line for line in page.splitlines() if f"{name}_first.json" in line)
    first, now = FIRST_RUNS[name]["all"], result(name)["all"]
    missed = first["wrong"] - first["wrong_that_fail"]
    counts = (first["wrong"], first["right"], first["wrong_that_fail"], first["wrong_with_a_name"])
    later = (missed, now["wrong_that_fail"], now["wrong_with_a_name"], now["right_that_pass"])
    found = [int(n) for n in re.findall(r"\d+", line)]
    expected = [*counts, first["right_that_pass"], *later]
    assert found == expected


@pytest.mark.slow
def test_every_blind_answer_is_judged_rightly():
    assert judge_all(BLIND, None) == 0


def test_the_command_counts_and_names_what_is_misjudged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tools.result.FOLDER", tmp_path)
    assert judge_all(tmp_path, None) == 2
    folder = tmp_path / "03_heads"
    for kind in ("wrong", "right"):
        (folder / kind).mkdir(parents=True)
    (folder / "right" / "crash.py").write_text("import os\nos._exit(0)\n")
    (folder / "wrong" / "none.py").write_text("def split_heads(x, n_heads):\n    return x\n")
    assert judge_all(tmp_path, "counts") == 1
    said = capsys.readouterr().out
    assert "wrong   1 of   1 fail" in said and "right   0 of   1 pass" in said
    assert "crash" in said and "none" not in said
    counts = json.loads((tmp_path / "counts.json").read_text())
    assert counts["misjudged"] == ["03_heads/right/crash"] and counts["commit"]
