"""The table "What functions return" of the page on Python: every call in it is made, and every type
and attribute that it names is there. No other call may be in the table."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

import clearhead as ch
from tests.api.conftest import PAIRS, tiny_recipe
from tests.test_documents import DOCS

PO = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "aei"\nmsgstr ""\n'
STUDY = """
recipe = "copy-task"
seeds = [3]
measures = ["loss"]
[budget]
steps = 2
[arms.base]
title = { en = "as it is", zh = "原样" }
[arms.wide]
model.d_ff = 48
"""
SLOW = {"plan"}
"""Rows that take longer than a test should; each is known by its first call."""


class Row(NamedTuple):
    """A line of the table."""

    calls: list[str]
    types: list[str]
    held: list[str]


def code_of(cell: str) -> list[str]:
    """What stands in backticks."""
    return re.findall(r"`([^`]+)`", cell)


def rows_of(page: Path, headings: tuple[str, str]) -> list[Row]:
    """The rows of the table behind the first heading."""
    text = page.read_text(encoding="utf-8")
    table = text.partition(f"\n## {headings[0]}\n")[2].partition(f"\n## {headings[1]}\n")[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")][1:]
    cells = [line.strip("| ").split(" | ") for line in lines]
    return [Row(*(code_of(cell) for cell in row)) for row in cells]


ROWS = rows_of(DOCS / "en" / "python.md", ("What functions return", "Errors"))


def test_the_table_is_the_same_in_both_languages():
    assert rows_of(DOCS / "zh" / "python.md", ("各函数的返回值", "错误")) == ROWS and len(ROWS) > 15


@pytest.fixture
def calls(
    translator: ch.TrainedRun,
    language_model: ch.TrainedRun,
    classifier: ch.TrainedRun,
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, Callable[[], Any]]:
    """Call, as the table has it → what makes it."""
    monkeypatch.setenv("CLEARHEAD_DATA", str(tmp_path / "data"))
    prepared = str(place / "prepared" / "pairs")
    (tmp_path / "fr.po").write_text(PO)
    (tmp_path / "study.toml").write_text(STUDY)

    def imported() -> Any:
        language_model.export(tmp_path / "hf", check=False)
        return ch.import_model(tmp_path / "hf", tmp_path / "imported")

    def study() -> ch.Study:
        return ch.study(tmp_path / "study.toml", folder=tmp_path / "study")

    recipe = tiny_recipe(place / "corpus", "pairs")
    model = torch.nn.Sequential(torch.nn.Embedding(11, 8), torch.nn.Linear(8, 11))
    return {
        "model.translate": lambda: translator.translate("aei"),
        "generate": lambda: language_model.generate("ae", max_new=2),
        "classify": lambda: classifier.classify("aei"),
        "model.stream": lambda: next(language_model.stream("ae", max_new=2)),
        "model.translations": lambda: translator.translations("aei"),
        "continuations": lambda: language_model.continuations("ae", max_new=2),
        "model.score": lambda: translator.score("aei", "iea"),
        "model.token_scores": lambda: translator.token_scores("aei", "iea"),
        "model.label_probabilities": lambda: classifier.label_probabilities("aei"),
        "model.attention": lambda: translator.attention("aei"),
        "model.fill_catalogue": lambda: translator.fill_catalogue(tmp_path / "fr.po", max_new=4),
        "load": lambda: ch.load(translator.folder),
        "import_model": imported,
        "recipe": lambda: ch.recipe("copy-task"),
        "get_corpus": lambda: ch.get_corpus("copy-task"),
        "recipe_for": lambda: ch.recipe_for(
            "mine", ch.OwnText.pairs(PAIRS * 8), minutes=0.1, folder=tmp_path / "text"
        ),
        "prepare": lambda: ch.prepare(recipe, folder=prepared),
        "train": lambda: translator,
        "training_plan": lambda: ch.training_plan(recipe, prepared=prepared),
        "evaluate": lambda: ch.evaluate(translator, exact=True),
        "calibrate": lambda: ch.calibrate(
            translator, source=["aei"] * 60, reference=["iea"] * 60, save=False, max_new=4
        ),
        "export": lambda: translator.export(tmp_path / "out", check=False),
        "examine": lambda: ch.examine(model, kind="decoder", vocab_size=11, quick=True),
        "diff": lambda: ch.diff(model, model),
        "see": lambda: ch.see(translator, "aei", max_new=3),
        "plan": lambda: ch.plan("tiny-decoder", tokens=1e9),
        "selftest": ch.selftest,
        "study": study,
        "result": lambda: study().result,
    }


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=row.calls[0], marks=[pytest.mark.slow] * (row.calls[0] in SLOW))
        for row in ROWS
    ],
)
def test_what_a_call_returns_is_what_the_table_says(
    row: Row, calls: dict[str, Callable[[], Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.chdir(tmp_path)
    values: list[Any] = []
    names = [*row.calls, *(name for name in row.types if name in calls)]  # `result` of a Study
    for name in names:
        value = calls[name]()
        values.append(value[0] if isinstance(value, list) else value)
    types = {"Path" if isinstance(value, Path) else type(value).__name__ for value in values}
    assert types == {*row.types} - {*names}
    for held in row.held:
        if held == 'measured["BLEU"]' or held in row.calls:
            continue  # how figures are looked up; which call has what follows
        attribute = re.sub(r"\(.*\)", "", held)
        having = [value for value in values if hasattr(value, attribute)]
        assert having, f"none of {names} has {held}"
        assert "(" not in held or all(callable(getattr(value, attribute)) for value in having)


def test_the_list_and_the_table_have_the_same_calls(calls: dict[str, Callable[[], Any]]):
    named = {name for row in ROWS for name in [*row.calls, *row.types]}
    assert calls.keys() <= named
    assert {name for row in ROWS for name in row.calls} <= calls.keys()
