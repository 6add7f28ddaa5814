"""What the READMEs and result pages claim is what the result files hold."""

import json
import re
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

from clearhead.config import recipe_names
from tools import own_text_page, peers_page
from tools.result import FOLDER
from tools.result_pages import PAGES, RESULTS, page, read_results, same_recipe, with_table

ROOT = Path(__file__).parent.parent
READMES = pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])


@pytest.mark.parametrize("name", PAGES)
def test_the_table_of_a_page_is_the_one_that_the_results_make(name: str):
    text = (ROOT / name).read_text("utf-8")
    assert text == with_table(text, read_results(), name), "run: python -m benchmarks.recipes pages"


@pytest.mark.parametrize("language", peers_page.PAGES)
def test_the_tables_of_the_peers_are_the_ones_that_their_lines_make(language: str):
    text = peers_page.PAGES[language].read_text("utf-8")
    assert text == peers_page.with_tables(text, language), "run: python -m benchmarks.peers pages"


FIGURE = r"(?<![\w.-])\d[\d,.]*(?![\w-])"  # a number that is no part of a name, such as GPT-2
PROOF = r"\]\((?:results|benchmarks/results)/[\w.-]+\)"


@READMES
def test_a_line_of_a_readme_with_a_figure_names_its_result_file(name: str):
    """Links are not figures: the numbers of chapters are inside of them, or before them."""
    lines = [
        line
        for line in (ROOT / name).read_text("utf-8").splitlines()
        if re.match(r"\||- ", line)
        and re.search(FIGURE, re.sub(r"(\b\d+ )?\[[^]]*\]\([^)]*\)", "", line))
    ]
    assert len(lines) == 4, "three results and the doctor's trial"
    for line in lines:
        assert re.search(PROOF, line), line


@READMES
def test_what_a_readme_says_of_the_doctor_is_what_its_trial_found(name: str):
    trial = json.loads((FOLDER / "third_trial.json").read_text("utf-8"))
    (line,) = (line for line in (ROOT / name).read_text("utf-8").splitlines() if "_trial" in line)
    said = [int(number) for number in re.findall(r"(?<!\w)\d+", line)]
    verdicts = {key: model["verdict"] for key, model in trial["models"].items()}
    bugs = [found for key, found in verdicts.items() if key.startswith("b")]
    healthy = [found for key, found in verdicts.items() if not key.startswith("b")]
    assert sorted(said) == sorted(
        [
            len(bugs),
            len(bugs) - bugs.count("missed"),
            len(healthy),
            healthy.count("false alarm"),
        ]
    )


def wheel_script() -> ModuleType:
    spec = spec_from_loader("wheel", SourceFileLoader("wheel", str(ROOT / ".ci" / "wheel")))
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@READMES
def test_a_readme_shows_what_its_training_printed_and_how_long_it_took(name: str):
    wheel, text = wheel_script(), (ROOT / name).read_text("utf-8")
    (block,) = (block for block in wheel.blocks(text) if block.trains)
    (trained,) = json.loads((FOLDER / "first_page.json").read_text("utf-8"))[name]
    assert trained["code"] == block.code, "run: .ci/wheel --whole"
    assert wheel.missing(block.shown, "\n".join(trained["said"])) == []
    assert re.findall(wheel.MINUTES, text) == [f"{trained['core_seconds'] / 60:.1f}"]
    assert wheel.with_training(text, trained) == text


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_example_of_a_catalogue_shows_what_its_commands_printed(language: str):
    wheel = wheel_script()
    text = (ROOT / "docs" / language / "localise-example.md").read_text("utf-8")
    result = json.loads((FOLDER / "localise_example.json").read_text("utf-8"))
    printed = {block["code"]: "\n".join(block["said"]) for block in result["blocks"]}
    shown = {block.code: block.shown for block in wheel.blocks(text)}
    assert shown.keys() == printed.keys(), "run: .ci/wheel --localise --whole"
    for code, lines in shown.items():
        assert lines and wheel.missing(lines, printed[code]) == [], code


def test_the_lines_that_a_page_shows_must_have_been_printed():
    missing = wheel_script().missing
    said = "open: http://127.0.0.1:8080/#key=abc\nstep 8  loss 2.5\n"
    assert missing(["open: http://127.0.0.1:1/#key=…", "step 8  loss 2.5"], said) == []
    assert missing(["open: http://127.0.0.2:8080/#key=…", "loss 2.5", "step 8  loss 2x5"], said)


@pytest.mark.parametrize("language", own_text_page.PAGES)
def test_the_table_of_ones_own_text_is_the_one_that_its_lines_make(language: str):
    found = own_text_page.TABLE.search(own_text_page.PAGES[language].read_text("utf-8"))
    assert found is not None and found[0] == own_text_page.table(language)


def test_every_recipe_has_a_result():
    assert {result["recipe"] for result in read_results()} == set(recipe_names())


def test_every_result_has_its_page_and_its_curve():
    for result in read_results():
        assert (RESULTS / f"{result['label']}.md").read_text("utf-8") == page(result)
        assert (RESULTS / f"{result['label']}.png").stat().st_size > 5_000


def test_every_result_is_of_a_shipped_recipe_and_says_how_it_came_about():
    for result in read_results():
        assert result["recipe"] in recipe_names()
        assert same_recipe(result["config"], result["recipe"], result["overrides"]), (
            f"{result['recipe']} was changed after its result was measured: train it again"
        )
        assert result["commit"] and result["date"] and result["machine"]["processor"]
        for run in result["runs"]:
            assert run["steps"] > 0 and run["core_minutes"] > 0 and run["scores"]
