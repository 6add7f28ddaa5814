"""What the READMEs and result pages claim is what the result files hold."""

from pathlib import Path

import pytest

from benchmarks import own_text_page
from benchmarks.peers import tables
from benchmarks.result_pages import HEADINGS, RESULTS, page, read_results, same_recipe, with_table
from clearhead.config import recipe_names

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("name", HEADINGS)
def test_the_table_of_a_readme_is_the_one_that_the_results_make(name: str):
    text = (ROOT / name).read_text("utf-8")
    assert text == with_table(text, read_results(), name), "run: python -m benchmarks.recipes pages"


@pytest.mark.parametrize("name", tables.HEADINGS)
def test_the_table_of_the_peers_is_the_one_that_their_lines_make(name: str):
    found = tables.TABLE.search((ROOT / name).read_text("utf-8"))
    assert found is not None and found[0] == tables.table(name)


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
