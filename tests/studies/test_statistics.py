"""Intervals cover what they claim to cover, and find what they claim to find."""

import json

import numpy as np
import pytest

from clearhead.studies.statistics import (
    COVERAGE,
    N_BLOCKS,
    POWER,
    Measurements,
    detectable,
    detectable_in_spreads,
    difference,
    estimate,
)
from tests.studies.simulated import (
    CASES,
    coverage,
    over_seeds,
    over_seeds_and_sentences,
    simulate,
)
from tools.coverage_page import PAGES, with_coverage
from tools.result import FOLDER

N_DRAWS = 1000


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("n_seeds", [5, 10])
def test_an_interval_covers_the_truth_as_often_as_it_says(case: str, n_seeds: int):
    found = coverage(over_seeds_and_sentences, n_seeds, case, n_draws=N_DRAWS)
    assert 0.93 <= found <= 0.97


@pytest.mark.parametrize("case", CASES)
def test_the_coverage_with_three_seeds_is_printed(case: str):
    found = coverage(over_seeds_and_sentences, 3, case, n_draws=N_DRAWS)
    print(f"3 seeds, {case}: {found:.1%}")
    assert 0.90 <= found <= 0.98


def test_seeds_alone_do_not_know_how_the_sentences_vary():
    assert coverage(over_seeds, 5, "sentences dominate", n_draws=300) < 0.5


@pytest.mark.parametrize("n_seeds", [3, 5, 10])
def test_a_planted_difference_is_found_with_the_probability_that_the_plan_states(n_seeds: int):
    """In units of the standard deviation of the paired differences, as the plan gives it."""
    effect = detectable_in_spreads(n_seeds, paired=True)
    assert effect is not None
    rng = np.random.default_rng(n_seeds)
    found = 0
    for _ in range(N_DRAWS):
        shared = rng.normal(size=n_seeds)  # what pairing takes away
        first = Measurements((5 * shared).tolist())
        second = Measurements((5 * shared + effect + rng.normal(size=n_seeds)).tolist())
        each = difference(first, second, paired=True)
        found += each.shown and each.value > 0
    assert abs(found / N_DRAWS - POWER) < 0.04


def test_a_planted_difference_between_unpaired_runs_is_found_as_often():
    effect = detectable_in_spreads(5, paired=False)
    assert effect is not None
    rng = np.random.default_rng(5)
    found = 0
    for _ in range(N_DRAWS):
        first, second = (Measurements((rng.normal(size=5) + x).tolist()) for x in (0, effect))
        each = difference(first, second, paired=False)
        found += each.shown and each.value > 0
    assert abs(found / N_DRAWS - POWER) < 0.05


def test_a_difference_that_would_have_been_shown_is_found_that_often_with_sentences_too():
    """The size is stated from one study's own noise; over many studies it is right on average."""
    rng = np.random.default_rng(1)
    sizes = [estimate(simulate(rng, 5, "both alike")) for _ in range(200)]
    effect = float(np.median([each.detectable for each in sizes if each.detectable]))
    shown = [estimate(simulate(rng, 5, "both alike")) for _ in range(600)]
    moved = [each._replace(value=each.value + effect) for each in shown]
    assert 0.7 < np.mean([each.shown and each.value > 0 for each in moved]) < 0.9


def lines_that_differ(
    rng: np.random.Generator, share: float, n_seeds: int, n_lines: int, common: float
) -> Measurements:
    """An arm that is right in all lines but a share of them; of these, `common` are the same under
    every seed."""
    wrong = np.where(
        rng.random(n_lines) < common,
        rng.random(n_lines) < share,
        rng.random((n_seeds, n_lines)) < share,
    )
    inside = wrong.reshape(n_seeds, -1, N_BLOCKS).sum(axis=1)
    left_out = (wrong.sum(axis=1, keepdims=True) - inside) / (n_lines - n_lines // N_BLOCKS)
    return Measurements((1 - wrong.mean(axis=1)).tolist(), (1 - left_out).tolist(), n_lines)


@pytest.mark.parametrize("common", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(("n_seeds", "n_lines"), [(3, 500), (5, 200)])
def test_where_no_line_differs_the_stated_difference_would_have_been_shown(
    n_seeds: int, n_lines: int, common: float
):
    rng = np.random.default_rng(3)
    perfect = lines_that_differ(rng, 0.0, n_seeds, n_lines, common)
    stated = difference(perfect, perfect, paired=True).detectable
    assert stated is not None
    shown = [
        difference(perfect, worse, paired=True).shown
        for worse in (lines_that_differ(rng, stated, n_seeds, n_lines, common) for _ in range(300))
    ]
    assert np.mean(shown) > POWER - 0.04


def test_a_share_that_varies_too_much_states_no_difference():
    wild = Measurements([0.0, 1.0], [[0.0] * N_BLOCKS, [1.0] * N_BLOCKS], n_lines=40)
    steady = Measurements([0.5, 0.5], [[0.5] * N_BLOCKS] * 2, n_lines=40)
    found = difference(steady, wild, paired=True)
    assert found.half is not None and found.detectable is None


def test_no_difference_is_rarely_called_one():
    rng = np.random.default_rng(7)
    found = 0
    for _ in range(N_DRAWS):
        first, second = (simulate(rng, 5, "seeds dominate") for _ in range(2))
        found += difference(first, second, paired=False).shown
    assert found / N_DRAWS < 0.08


def test_sentences_that_two_arms_share_do_not_widen_their_difference():
    rng = np.random.default_rng(2)
    lines = rng.normal(size=N_BLOCKS)
    figures = []
    for shift in (0.0, 1.0):
        noise = 0.01 * rng.normal(size=3)
        left_out = [(lines + shift + each).tolist() for each in noise]
        figures.append(Measurements((noise + shift).tolist(), left_out))
    first, second = figures
    alone, apart = estimate(first).half, difference(first, second, paired=True)
    assert alone is not None and apart.half is not None
    assert apart.half < alone / 10 and apart.shown
    unpaired = difference(first, second, paired=False)
    assert unpaired.half is not None and unpaired.half < alone / 10


def test_lines_that_are_all_right_still_have_an_interval():
    figure = Measurements([1.0, 1.0, 1.0], [[1.0] * N_BLOCKS] * 3, n_lines=500)
    assert estimate(figure).half == pytest.approx(0.00735, rel=0.01)  # Clopper and Pearson
    assert not difference(figure, figure, paired=True).shown


def test_one_seed_has_no_interval():
    assert estimate(Measurements([2.0])).half is None
    assert detectable_in_spreads(1, paired=True) is detectable_in_spreads(1, paired=False) is None
    assert not difference(Measurements([2.0]), Measurements([3.0]), paired=True).shown
    three = Measurements([2.0, 2.01, 2.02], [[2.0] * N_BLOCKS] * 3)
    one = Measurements([3.0], [[3.0] * N_BLOCKS])
    for first, second in ((one, three), (three, one)):
        assert difference(first, second, paired=False).half is None


def test_more_seeds_show_smaller_differences():
    assert detectable(1.0, 2) > detectable(1.0, 4) > detectable(1.0, 100) > 2.8
    assert detectable(0.0, 2) == 0.0


def test_the_stated_coverage_is_the_measured_one():
    rows = json.loads((FOLDER / "intervals.json").read_text(encoding="utf-8"))["rows"]
    for n_seeds, ends in COVERAGE.items():
        found = [
            row["coverage"]
            for row in rows
            if (row["interval"], row["seeds"]) == ("t over seeds and sentences", n_seeds)
        ]
        assert ends == (min(found), max(found))


@pytest.mark.parametrize("language", PAGES)
def test_the_table_of_coverage_is_the_measured_one(language: str):
    text = PAGES[language].read_text(encoding="utf-8")
    assert with_coverage(text, language) == text, "run: python -m tools.coverage_page"
