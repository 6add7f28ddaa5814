"""Every exercise: its solution passes, its blanks fail, and typical mistakes are called by name."""

import ast
import re
import string
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.course import BlankError
from clearhead.course.checking import Learned, Mistake, examine_answer
from clearhead.course.exercises import EXERCISES, HERE, Exercise
from clearhead.course.loading import load_file
from clearhead.course.phrasebook import phrases
from clearhead.course.state import LANGUAGES, LearnLanguage
from clearhead.course.telling import tell_verdict, wrap
from clearhead.course.verdict import Verdict

MISTAKES = [(exercise, mistake) for exercise in EXERCISES for mistake in exercise.mistakes]
SINGLE = [(exercise, mistake) for exercise, mistake in MISTAKES if not mistake.second]


def names(value: Any) -> str:
    return getattr(value, "name", str(value))


def examined(exercise: Exercise, learned: Learned, file: str = "") -> Verdict:
    return examine_answer(exercise.checks, exercise.mistakes, exercise.probes, learned, file)


@pytest.mark.parametrize("exercise", EXERCISES, ids=names)
def test_the_solution_passes(exercise: Exercise):
    verdict = examined(exercise, exercise.solution())
    assert verdict.complete, verdict
    assert verdict.n_checks >= 4


@pytest.mark.parametrize("exercise", EXERCISES, ids=names)
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_file_with_blanks_fails_and_gives_the_first_hint(
    exercise: Exercise, language: LearnLanguage
):
    file = HERE / exercise.topic / f"exercise.{language}.py"
    learned = load_file(file)
    assert set(exercise.functions) <= set(learned)
    verdict = examined(exercise, learned, str(file))
    assert verdict.trouble == "blank" and not verdict.passed
    blank_line = file.read_text(encoding="utf-8").splitlines()[(verdict.line or 0) - 1]
    assert "blank()" in blank_line
    hint = exercise.texts(language)["hints"][0]
    assert "".join(wrap(hint)[0].split())[:10] in "".join(
        tell_verdict(exercise, verdict, language).split()
    )


@pytest.mark.parametrize(("exercise", "mistake"), SINGLE, ids=names)
def test_a_typical_mistake_is_called_by_its_name(exercise: Exercise, mistake: Mistake):
    learned = {**exercise.solution(), mistake.function: mistake.wrong}
    verdict = examined(exercise, learned)
    assert not verdict.complete
    assert verdict.mistakes == [mistake.name], verdict
    for language in LANGUAGES:
        said = tell_verdict(exercise, verdict, language)
        explanation = exercise.texts(language)["mistakes"][mistake.name]["says"]
        assert "".join(explanation.split()) in "".join(said.split())


@pytest.mark.slow
@pytest.mark.parametrize("exercise", EXERCISES, ids=names)
def test_two_mistakes_at_once_are_both_called_by_their_names(exercise: Exercise):
    """Or one of them, where it hides the other."""
    both, double = 0, [mistake for mistake in exercise.mistakes if mistake.second]
    for mistake in double:
        verdict = examined(exercise, {**exercise.solution(), mistake.function: mistake.wrong})
        assert not verdict.complete, mistake
        assert verdict.mistakes and set(verdict.mistakes) <= set(mistake.names), mistake
        both += len(verdict.mistakes) == 2
    assert both >= 0.9 * len(double)


def test_two_mistakes_are_said_as_two():
    exercise = EXERCISES[0]
    learned = {**exercise.solution(), "attention_weights": lambda q, k: (q @ k.mT).softmax(1)}
    verdict = examined(exercise, learned)
    assert verdict.mistakes == ["softmax over queries", "no scale"]
    said = "".join(tell_verdict(exercise, verdict, "zh").split())
    assert "两处错误" in said and "softmax取最后一维" in said and "除以√d" in said


def test_there_are_enough_of_them():
    assert len(EXERCISES) == 20 and len(MISTAKES) >= 24
    assert all(len(exercise.mistakes) >= 3 for exercise in EXERCISES)


@pytest.mark.parametrize("page", ["docs/en/course/index.md", "docs/zh/course/index.md"])
def test_the_page_says_how_many_mistakes_are_known(page: str):
    text = (Path(__file__).parent.parent.parent / page).read_text(encoding="utf-8")
    known = sum(len(exercise.mistake_names) for exercise in EXERCISES)
    assert re.findall(r"knows (\d+) typical|认出 (\d+) 种", text) in (
        [(str(known), "")],
        [("", str(known))],
    )


def test_an_unknown_mistake_is_not_given_a_reason():
    exercise = EXERCISES[0]
    learned = {
        **exercise.solution(),
        "attention_weights": lambda q, k: torch.full((len(q), q.shape[1], k.shape[1]), 0.3),
    }
    verdict = examined(exercise, learned)
    assert verdict.failed == "rows" and verdict.mistakes == []
    assert "1.50" in tell_verdict(exercise, verdict, "en")


def test_what_is_used_before_it_is_imported_is_named():
    verdict = Verdict(trouble="error", message="NameError: name 'F' is not defined", line=3)
    assert "import torch.nn.functional as F" in tell_verdict(EXERCISES[0], verdict, "en")
    assert "没有导入" in tell_verdict(EXERCISES[0], verdict, "zh")


def test_what_comes_out_is_named_or_shown_in_numbers():
    exercise = EXERCISES[5]
    learned = {**exercise.solution(), "residual": lambda x, f, norm, _: 3 * x + f(norm(x))}
    verdict = examined(exercise, learned)
    assert verdict.failed == "pre_silent"
    assert re.search(r"\[-?\d+\.\d\d, .*, …\]", tell_verdict(exercise, verdict, "en"))


def over_axis_2(scores: Tensor, allowed: Tensor) -> Tensor:
    """Right for three axes, and wrong for heads."""
    filled = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min / 2)
    return filled.softmax(dim=2) * allowed.any(dim=-1, keepdim=True)


def test_weights_that_are_right_without_heads_only_are_not_passed_on():
    exercise = EXERCISES[1]
    verdict = examined(exercise, {**exercise.solution(), "masked_weights": over_axis_2})
    assert verdict.failed == "with_heads"
    assert "dim=-1" in tell_verdict(exercise, verdict, "en")


def in_place(x: Tensor, sublayer: Any, norm: Any, placement: str) -> Tensor:
    if placement == "pre":
        x += sublayer(norm(x))
        return x
    x += sublayer(x)
    return norm(x)


def test_what_changes_its_input_is_told_so():
    exercise = EXERCISES[5]
    verdict = examined(exercise, {**exercise.solution(), "residual": in_place})
    assert verdict.failed == "input_unchanged" and verdict.mistakes == []
    layer = EXERCISES[6].solution()["PreNormDecoderLayer"]

    class InPlace(layer):
        def forward(self, x: Tensor, memory: Tensor, real: Tensor, real_source: Tensor) -> Tensor:
            x[:] = super().forward(x, memory, real, real_source)
            return x

    verdict = examined(EXERCISES[6], {"PreNormDecoderLayer": InPlace})
    assert verdict.failed == "input_unchanged"


def test_norms_may_be_computed_in_single_precision():
    norm = EXERCISES[5].solution()["layer_norm"]
    single = {
        **EXERCISES[5].solution(),
        "layer_norm": lambda x, w, b, eps: norm(x.float(), w.float(), b.float(), eps),
    }
    assert examined(EXERCISES[5], single).complete


def test_what_the_checks_cannot_use_is_no_internal_error():
    exercise = EXERCISES[2]
    verdict = examined(exercise, {**exercise.solution(), "split_heads": lambda x, n: None})
    assert verdict.trouble == "result" and "NoneType" in verdict.message
    missing = {k: v for k, v in exercise.solution().items() if k != "merge_heads"}
    assert examined(exercise, missing).message == "merge_heads"


def placeholders(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


@pytest.mark.parametrize("exercise", EXERCISES, ids=names)
def test_both_languages_say_the_same_about_the_same(exercise: Exercise):
    english, chinese = exercise.texts("en"), exercise.texts("zh")
    assert english.keys() == chinese.keys()
    assert len(english["hints"]) == len(chinese["hints"]) == 3
    assert list(english["checks"]) == [check.name for check in exercise.checks]
    assert set(english["mistakes"]) == {mistake.name for mistake in exercise.mistakes}
    for part in ("checks", "mistakes"):
        assert english[part].keys() == chinese[part].keys()
        for key, texts in english[part].items():
            # An English mistake is called by its key; a Chinese one has a name of its own.
            assert {*texts, *(["name"] if part == "mistakes" else [])} == chinese[part][key].keys()
            for name in set(texts) - {"erratum"}:
                assert placeholders(texts[name]) == placeholders(chinese[part][key][name]), key
            assert texts.get("erratum") == chinese[part][key].get("erratum")


def test_the_commands_own_phrases_are_in_both_languages():
    english, chinese = phrases("en"), phrases("zh")
    assert english.keys() == chinese.keys()
    for key, text in english.items():
        assert placeholders(text) == placeholders(chinese[key]), key


def skeleton(file: Path) -> str:
    """The code without its docstrings, which are translated."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        match node:
            case ast.Module(body=body) | ast.FunctionDef(body=body) | ast.ClassDef(body=body):
                match body[0]:
                    case ast.Expr(value=ast.Constant(value=str())):
                        body[0] = ast.Pass()
    return ast.dump(tree)


@pytest.mark.parametrize("exercise", EXERCISES, ids=names)
def test_both_languages_have_the_same_code(exercise: Exercise):
    folder = HERE / exercise.topic
    assert skeleton(folder / "exercise.en.py") == skeleton(folder / "exercise.zh.py")
    assert skeleton(folder / "solution.py") == skeleton(folder / "solution.zh.py")
    assert "参考答案" in exercise.solution_text("zh")


def test_a_blank_says_that_it_is_one():
    from clearhead.course import blank

    with pytest.raises(BlankError):
        blank()


def test_chinese_lines_are_as_wide_as_english_ones():
    from rich.cells import cell_len

    text = "先相乘，除以 √d，在键的方向上做 softmax，再乘以值。" * 4
    lines = wrap(text, 40)
    assert all(cell_len(line) <= 42 for line in lines)  # a comma may hang over
    assert "".join("".join(lines).split()) == "".join(text.split())
