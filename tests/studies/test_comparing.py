"""What a table says of results: unequal arms, sweeps, runs that failed, lines of an older study."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clearhead import build_model
from clearhead.studies.comparing import compare
from clearhead.studies.pages import SUFFIX, geometric_mean, page, write_pages
from clearhead.studies.picture import picture, round_ticks
from clearhead.studies.result_lines import add_line, lines_of, read_lines
from clearhead.studies.showing import table
from clearhead.studies.statistics import N_BLOCKS
from clearhead.studies.study_file import StudyPlan, load_study, study_names

PAGES = Path(__file__).parent.parent.parent / "results" / "studies"


def line(plan: StudyPlan, arm_key: str, seed: int, loss: float, **more: Any) -> dict[str, Any]:
    arm = next(arm for arm in plan.arms if arm.key == arm_key)
    steps = more.pop("steps", 12)
    return {
        "arm": arm.name,
        "lr": arm.lr,
        "seed": seed,
        "steps": steps,
        "fingerprint": arm.fingerprint(arm.trial(seed, steps)),
        **plan.conditions,
        "tests": {test.name: test.files for test in plan.tests},
        "values": {"exact": 0.5, "loss": loss},
        "left_out": {"loss": [loss] * N_BLOCKS},
        "n_lines": {"exact": 100},
        "parameters": 1000,
        "tokens": 5000,
        "core_seconds": 10.0,
    } | more


def row_of(text: str, arm: str, measure: str = "loss") -> str:
    part = text.split(f"\n{measure} (")[1]
    return next(each for each in part.splitlines() if each.strip().startswith(arm))


def test_arms_with_other_budgets_or_sizes_say_so(place: Path):
    plan = load_study(place / "study.toml")
    lines = [line(plan, "base", seed, 2.0) for seed in plan.seeds]
    more = {"parameters": 1100, "tokens": 4000, "core_seconds": 15.0}
    lines += [line(plan, "wide", seed, 2.0, **more) for seed in plan.seeds]
    shown = table(compare(plan, lines))
    wanted = "parameters +10.0%, tokens -20.0%, core seconds +50.0%"
    assert row_of(shown, "wide").endswith(wanted)
    assert wanted in page(compare(plan, lines), "en") and "参数量 +10.0%" in page(
        compare(plan, lines), "zh"
    )
    assert "core seconds" not in table(compare(plan, lines), times=False)
    equal = [line(plan, arm, seed, 2.0) for arm in ("base", "wide") for seed in plan.seeds]
    assert "%," not in row_of(table(compare(plan, equal)), "wide")


def test_losses_of_other_tokens_are_not_compared(place: Path):
    study = (place / "study.toml").read_text(encoding="utf-8")
    study += '[arms.coarse]\ndata.tokenizer = "bpe"\ndata.vocab_size = 300\n'
    (place / "study.toml").write_text(study, encoding="utf-8")
    plan = load_study(place / "study.toml")
    arms = ("base", "wide", "coarse")
    lines = [line(plan, arm, seed, 2.0 + seed / 10) for arm in arms for seed in plan.seeds]
    result = compare(plan, lines)
    *_, coarse = result.arms
    assert [*coarse.differences] == ["exact"] and coarse.figures["loss"].value > 2
    assert row_of(table(result), "coarse").count("not compared: it counts other tokens") == 1
    assert "counts other tokens" not in row_of(table(result), "wide")
    assert "不比较：词元与基线不同" in page(result, "zh")


@pytest.mark.parametrize(
    ("seconds", "commits", "said"),
    [
        ((15.0, 13.0), ("a", "a"), True),
        ((5.0, 7.0), ("a", "a"), True),
        ((19.0, 10.5), ("a", "a"), False),
        ((19.0, 5.0), ("a", "a"), False),
        ((15.0, 15.0), ("b", "b"), False),
        ((15.0, 15.0), ("a", "b"), False),
    ],
)
def test_processor_time_is_named_if_it_differs_with_every_seed_at_one_commit(
    place: Path, seconds: tuple[float, float], commits: tuple[str, str], said: bool
):
    plan = load_study(place / "study.toml")
    lines = [line(plan, "base", seed, 2.0, clearhead="a") for seed in plan.seeds]
    lines += [
        line(plan, "wide", seed, 2.0, core_seconds=time, clearhead=commit)
        for seed, time, commit in zip(plan.seeds, seconds, commits)
    ]
    assert ("core seconds" in row_of(table(compare(plan, lines)), "wide")) == said


def test_the_page_says_which_arms_were_measured_at_which_commit(place: Path):
    plan = load_study(place / "study.toml")

    def said(*commits: str) -> str:
        runs = [(arm, seed) for arm in plan.names for seed in plan.seeds]
        lines = [line(plan, *run, 2.0, clearhead=at) for run, at in zip(runs, commits)]
        assert ("代码版本不尽相同" in page(compare(plan, lines), "zh")) == (len(set(commits)) > 1)
        return page(compare(plan, lines), "en")

    assert "same code" not in said("a", "a", "a", "a")
    apart = said("a", "a", "b", "b")
    assert "as it is with clearhead a; the other arms with clearhead b." in apart
    mixed = said("a", "b", "b", "b")
    assert "as it is with clearhead a; further runs with clearhead b." in mixed


def test_a_difference_is_named_and_none_is_not_called_no_effect(place: Path):
    plan = load_study(place / "study.toml")
    base = [line(plan, "base", seed, 2.0 + seed / 100) for seed in plan.seeds]
    worse = [line(plan, "wide", seed, 3.0 + seed / 100) for seed in plan.seeds]
    assert "worse" in row_of(table(compare(plan, [*base, *worse])), "wide")
    alike = [line(plan, "wide", seed, 2.1 - seed / 100) for seed in plan.seeds]
    assert "no difference shown; a difference of 0." in row_of(
        table(compare(plan, [*base, *alike])), "wide"
    )
    assert "equal in every run" not in table(compare(plan, [*base, *alike])).split("\nloss")[1]


def test_what_would_have_been_shown_is_possible(place: Path):
    text = (place / "study.toml").read_text()
    (place / "study.toml").write_text(text.replace("[3, 5]", "[3, 5, 7]"))
    plan = load_study(place / "study.toml")

    def found(*exact: float) -> str:
        lines = [
            line(plan, arm, seed, 2.0, values={"exact": value, "loss": 2.0})
            for arm, value in zip(plan.names, exact)
            for seed in plan.seeds
        ]
        return row_of(table(compare(plan, lines)), "wide", "exact")

    assert "; a fall of " in found(1.0, 0.99)
    assert "; a rise of " in found(0.0, 0.01)
    assert "; a difference of " in found(0.5, 0.5)
    wild = [line(plan, "base", seed, 2.0) for seed in plan.seeds]
    wild += [
        line(plan, "wide", seed, 2.0, values={"exact": value, "loss": 2.0})
        for seed, value in zip(plan.seeds, (0.0, 0.5, 1.0))
    ]
    shown = row_of(table(compare(plan, wild)), "wide", "exact")
    assert "every possible one is too small for this study" in shown


def test_chance_counts_all_comparisons_of_a_page_at_the_simulated_coverage(place: Path):
    text = (place / "study.toml").read_text() + "[arms.wider]\nmodel.d_ff = 28\n"
    (place / "study.toml").write_text(text)
    plan = load_study(place / "study.toml")
    lines = [line(plan, arm, seed, 2.0 + seed) for arm in plan.names for seed in plan.seeds]
    two = page(compare(plan, lines), "en")
    assert "was not simulated. If they do in 95% of studies, 0.2 of the 4 comparisons on" in two
    (place / "study.toml").write_text(text.replace("[3, 5]", "[3, 5, 7, 9]"))
    plan = load_study(place / "study.toml")
    lines = [line(plan, arm, seed, 2.0 + seed) for arm in plan.names for seed in plan.seeds]
    found = compare(plan, lines)
    wanted = "of the 4 comparisons {}, 0.17 to 0.42 would be called a difference by chance alone."
    assert "In simulated studies of 3 seeds" in page(found, "en")
    assert "in 89.5% to 95.8%" in page(found, "en")
    assert wanted.format("on this page") in page(found, "en")
    assert wanted.format("in these tables") in table(found)
    assert "本页的 4 次比较中平均会有 0.17 到 0.42 次" in page(found, "zh")


def test_the_page_says_how_runs_are_paired_and_what_intervals_are_over(place: Path):
    paired = "Differences are between runs of the same seed, which see the same samples"
    apart = "their runs do not see the same samples in the same order."

    def said(study: str, **more: Any) -> str:
        (place / "study.toml").write_text(study)
        plan = load_study(place / "study.toml")
        lines = [line(plan, arm, seed, 2.0, **more) for arm in plan.names for seed in plan.seeds]
        assert page(compare(plan, lines), "zh")
        return page(compare(plan, lines), "en")

    text = (place / "study.toml").read_text()
    both = said(text, left_out={name: [0.5] * N_BLOCKS for name in ("exact", "loss")})
    assert paired in both and apart not in both
    assert "over seeds and sentences as crossed random effects." in both
    other = said(text + "batches.batch_tokens = 64\n")
    assert paired not in other and apart in other
    assert "as crossed random effects; over seeds alone for exact." in other
    some = said(text + "[arms.small]\nbatches.batch_tokens = 64\n", left_out={})
    assert paired in some and "Those of small are between means" in some
    assert "over seeds alone; what other test sentences" in some and "crossed" not in some


def test_a_run_that_failed_is_counted_and_has_no_value(place: Path):
    plan = load_study(place / "study.toml")
    lines = [line(plan, "base", seed, 2.0) for seed in plan.seeds]
    lines += [line(plan, "wide", 3, 2.0), line(plan, "wide", 5, 0, values={}, failed="NaN")]
    shown = compare(plan, lines)
    assert "1 of 2 runs did not stay finite" in row_of(table(shown), "wide")
    assert shown.arms[1].values["loss"] == [2.0]


def test_a_sweep_is_one_line_and_is_decided_by_the_validation_split(place: Path):
    text = (place / "study.toml").read_text()
    text = f"lr = [0.001, 0.01]\n{text}[settings.train]\nvalidate_every = 6\n"
    (place / "study.toml").write_text(text)
    plan = load_study(place / "study.toml")
    assert [arm.key for arm in plan.arms[:2]] == ["base-lr-0.001", "base-lr-0.01"]
    assert [arm.recipe.train.lr for arm in plan.arms[:2]] == [0.001, 0.01]
    lines = [
        line(plan, f"{arm}-lr-{lr:g}", seed, loss, valid_loss=valid)
        for arm in ("base", "wide")
        # The test split would choose the other rate.
        for lr, loss, valid in ((0.001, 1.0, 2.5), (0.01, 2.0, 2.0))
        for seed in plan.seeds
    ]
    found = compare(plan, lines)
    assert [arm.lr for arm in found.arms] == [0.01, 0.01]
    assert found.arms[0].figures["loss"].value == 2.0
    assert "learning rate" in page(found, "en")


def test_lines_of_an_arm_that_was_changed_do_not_count(place: Path):
    plan = load_study(place / "study.toml")
    lines = [line(plan, "wide", seed, 2.0) for seed in plan.seeds]
    assert len(lines_of(plan, lines)) == 2
    text = (place / "study.toml").read_text()
    (place / "study.toml").write_text(text.replace("d_ff = 24", "d_ff = 25"))
    assert lines_of(load_study(place / "study.toml"), lines) == {}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("steps = 12", "steps = 24"),
        ("steps = 12", "tokens = 12"),
        ("recipe =", "beam = 5\nrecipe ="),
        ('"few.txt"', '"many.txt"'),
    ],
)
def test_lines_of_another_budget_beam_or_test_set_do_not_count(place: Path, old: str, new: str):
    file = place / "study.toml"
    further = '[tests.few]\nsource = "few.txt"\nreference = "some.txt"\n'
    file.write_text(file.read_text() + further)
    plan = load_study(file)
    lines = [line(plan, arm, seed, 2.0) for arm in plan.names for seed in plan.seeds]
    assert compare(plan, lines).n_finished == 4
    file.write_text(file.read_text().replace(old, new, 1))
    assert compare(load_study(file), lines).n_finished == 0


def test_a_further_test_set_leaves_the_lines_that_do_not_know_it(place: Path):
    file = place / "study.toml"
    plan = load_study(file)
    lines = [line(plan, "wide", seed, 2.0) for seed in plan.seeds]
    file.write_text(file.read_text() + '[tests.few]\nsource = "few.txt"\nreference = "few.txt"\n')
    assert len(lines_of(load_study(file), lines)) == 2


def test_part_of_a_line_is_removed_when_the_next_is_added(tmp_path: Path):
    path = tmp_path / "results.jsonl"
    add_line(path, one := a_line())
    path.write_bytes(path.read_bytes() + b'{"arm": "hal')
    assert read_lines(path) == [one]
    add_line(path, one)
    assert read_lines(path) == [one, one]


def a_line() -> dict[str, Any]:
    run = {"arm": "base", "lr": None, "seed": 1, "steps": 1, "fingerprint": "f"}
    return run | {"values": {"loss": 1.5}, "parameters": 1, "tokens": 1}


@pytest.mark.parametrize(
    "damaged",
    [
        "no JSON",
        "[]",
        "{}",
        json.dumps(a_line() | {"seed": "1"}),
        json.dumps(a_line() | {"values": [1.5]}),
        json.dumps(a_line() | {"values": {"loss": "low"}}),
    ],
)
def test_a_line_that_is_no_result_is_named(tmp_path: Path, damaged: str):
    path = tmp_path / "results.jsonl"
    path.write_text(f"{json.dumps(a_line())}\n{damaged}\n")
    with pytest.raises(ValueError, match="line 2 is not a result; remove that line"):
        read_lines(path)


def test_pages_are_written_in_both_languages_with_pictures(place: Path):
    plan = load_study(place / "study.toml")
    lines = [line(plan, "base", seed, 2.0 + seed) for seed in plan.seeds]
    found = compare(plan, [*lines, line(plan, "wide", 3, 0.01)])
    files = write_pages(found, place / "out")
    assert [file.name for file in files] == [
        "study.jsonl", "study.md", "study.svg", "study.zh-CN.md", "study.zh-CN.svg",
    ]  # fmt: skip
    text = (place / "out" / "study.md").read_text()
    assert "3 of 4 runs are finished" in text and "**Not finished**: wide-5" in text
    assert "原样" in picture(found, "zh") and "as it is" in picture(found, "en")
    # The committed lines make the same page again.
    again = compare(plan, read_lines(place / "out" / "study.jsonl"))
    assert page(again, "en") == text


@pytest.mark.parametrize("name", study_names())
def test_every_shipped_study_is_of_models_that_can_be_built(name: str):
    plan = load_study(name)
    assert all(set(arm.title) == {"en", "zh"} and all(arm.title.values()) for arm in plan.arms)
    assert len({arm.fingerprint(arm.recipe) for arm in plan.arms}) == len(plan.arms)
    for arm in plan.arms:
        config = arm.trial(1, 10).model
        assert config is not None
        build_model(replace(config, vocab_size=40), **arm.parts)


@pytest.mark.parametrize("name", sorted(path.stem for path in PAGES.glob("*.jsonl")))
def test_every_page_of_a_study_is_what_its_lines_make(name: str):
    found = compare(load_study(name), read_lines(PAGES / f"{name}.jsonl"))
    for language, suffix in SUFFIX.items():
        assert (PAGES / f"{name}{suffix}.md").read_text("utf-8") == page(found, language)
        assert (PAGES / f"{name}{suffix}.svg").read_text("utf-8") == picture(found, language)


@pytest.mark.parametrize(
    ("language", "words", "logarithmic"),
    [
        ("en", ("better (shown)", "worse (shown)", "no difference", "baseline"), "logarithmic"),
        ("zh", ("更好（显著）", "更差（显著）", "未显示差异", "基线"), "对数坐标"),
    ],
)
def test_the_picture_says_what_its_marks_mean(
    place: Path, language: str, words: tuple[str, ...], logarithmic: str
):
    plan = load_study(place / "study.toml")
    base = [line(plan, "base", seed, 2.0) for seed in plan.seeds]
    near, far = ([line(plan, "wide", seed, x) for seed in plan.seeds] for x in (1.9, 0.02))
    drawn = picture(compare(plan, [*base, *near]), language)
    assert all(drawn.count(word) == 1 for word in words) and logarithmic not in drawn
    assert drawn.count(">exact") == 1 and drawn.count('stroke-dasharray="4 3"') == 3
    wide = picture(compare(plan, [*base, *far]), language)
    assert wide.count(logarithmic) == 1 and wide.index(logarithmic) > wide.index(">loss")


def test_a_bleu_of_nearly_nothing_is_zero_on_an_axis_from_zero():
    found = compare(load_study("parts-multi30k"), read_lines(PAGES / "parts-multi30k.jsonl"))
    drawn = picture(found, "en")
    assert "logarithmic" not in drawn and ">0.00 ± 0.00<" in drawn


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (30.1, 36.7, ["32", "34", "36"]),
        (1.93, 2.11, ["1.95", "2.00", "2.05", "2.10"]),
        (0.0, 1.0, ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        (-250.0, 980.0, ["-200", "0", "200", "400", "600", "800"]),
    ],
)
def test_an_axis_has_round_numbers_that_differ(low: float, high: float, labels: list[str]):
    assert [label for _, label in round_ticks(low, high)] == labels


def test_a_study_without_results_has_no_page(place: Path):
    found = compare(load_study(place / "study.toml"), [])
    with pytest.raises(Exception, match=r"first: clearhead\.study\('.*/study\.toml'\)\.run\(\)$"):
        write_pages(found, place / "out")
    assert "(no finished run yet)" in table(found)


def test_the_mean_of_norms_holds_what_their_product_cannot():
    assert geometric_mean([1e-180, 1e-182, 1e-181]) == pytest.approx(1e-181)
    assert geometric_mean([1e-180, 0.0]) == 0
