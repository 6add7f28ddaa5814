"""The words of tables and pages of studies, in both languages."""

import math
import tomllib
from functools import cache
from pathlib import Path

from clearhead.studies.comparing import ArmResult, StudyResult
from clearhead.studies.statistics import CONFIDENCE, COVERAGE
from clearhead.studies.study_file import StudyPlan, higher_is_better, is_possible

SHARES = ("exact", "accuracy")
TEXTS = Path(__file__).parent / "texts"


@cache
def words(language: str) -> dict[str, str]:
    """Return all texts of tables and pages in a language."""
    return tomllib.loads((TEXTS / f"{language}.toml").read_text(encoding="utf-8"))


def heading(column: str, language: str) -> str:
    """Return the heading of a column: the measure, its test set, and which direction is better."""
    say = words(language)
    measure, _, test = column.partition("@")
    where = say["comma"] + say["test"].format(name=test) if test else ""
    better = say["higher" if higher_is_better(column) else "lower"]
    return say["which"].format(what=measure + where, better=better)


def budget(plan: StudyPlan, language: str) -> str:
    """Describe the budget of each run."""
    return words(language)[f"by_{plan.budget}"].format(n=plan.amount)


def value_of(arm: ArmResult, column: str) -> str:
    """Format an arm's mean with its interval."""
    figure = arm.figures.get(column)
    if figure is None:
        return "–"
    scale, unit = (100, "%") if is_share(column) else (1, "")
    half = _scaled(figure.half, scale)
    return plus_minus(scale * figure.value, half, most=_digits(column)) + unit


def difference_of(arm: ArmResult, column: str) -> str:
    """Format the difference of an arm from the baseline with the interval, in points for a
    share."""
    difference = arm.differences.get(column)
    if difference is None:
        return ""
    scale = 100 if is_share(column) else 1
    half = _scaled(difference.half, scale)
    return plus_minus(scale * difference.value, half, sign=True, most=_digits(column))


def finding_of(arm: ArmResult, column: str, language: str) -> str:
    """Say the finding in words: better, worse, or which difference would have been shown."""
    say, verdict = words(language), arm.verdict(column)
    sentences: list[str] = []
    if verdict == "none":
        sentences.append(_none(arm, column, say))
    elif verdict:
        sentences.append(say[verdict])
    if column in arm.other_tokens:
        sentences.append(say["other_tokens"])
    if arm.n_failed:
        sentences.append(say["failed"].format(n=arm.n_failed, of=arm.n_seeds))
    return say["semicolon"].join(sentences)


def _none(arm: ArmResult, column: str, say: dict[str, str]) -> str:
    """What would have been shown, as far as the measure can rise or fall so much."""
    difference = arm.differences[column]
    size, base = difference.detectable, arm.figures[column].value - difference.value
    if size is None:
        return say["none_possible"]
    rises, falls = (is_possible(column, base + shift) for shift in (size, -size))
    kind = {(True, True): "none", (True, False): "none_rise", (False, True): "none_fall"}
    share = is_share(column)
    shown = f"{100 * size if share else size:.2g}{say['points'] if share else ''}"
    return say[kind.get((rises, falls), "none_possible")].format(x=shown)


def unequal_of(arm: ArmResult, language: str, *, times: bool) -> str:
    """Say what an arm has more or less of than the baseline."""
    say = words(language)
    return say["comma"].join(
        f"{say[cost]} {share:+.1%}"
        for cost, share in arm.unequal.items()
        if times or cost != "core_seconds"
    )


def chance_of(result: StudyResult, language: str, where: str) -> str:
    """Say how many of all comparisons would be called a difference by chance; "" for a single one.
    `where` they are shown: on_page or in_tables."""
    say = words(language)
    compared = [
        difference
        for arm in result.arms
        for difference in arm.differences.values()
        if difference.half is not None
    ]
    n = len(compared)
    if n < 2:
        return ""
    n_seeds = min(difference.n_seeds for difference in compared)
    simulated = max((seeds for seeds in COVERAGE if seeds <= n_seeds), default=None)
    if simulated is None or not columns_with_sentences(result):
        return say["chance"].format(n=n, where=say[where], wrong=(1 - CONFIDENCE) * n)
    low, high = COVERAGE[simulated]
    return say["chance_simulated"].format(
        seeds=simulated,
        low=100 * low,
        high=100 * high,
        n=n,
        where=say[where],
        fewest=(1 - high) * n,
        most=(1 - low) * n,
    )


def columns_with_sentences(result: StudyResult) -> list[str]:
    """Return the measures whose intervals are over seeds and sentences."""
    columns = {column for line in result.lines for column in line.get("left_out", {})}
    return [column for column in result.plan.columns if column in columns]


def is_share(column: str) -> bool:
    """Tell whether the measure is a share of lines, which is shown in percent."""
    return column.split("@")[0] in SHARES


def _digits(column: str) -> int:
    """The highest number of digits after the point: of a measure from 0 to 100, thousandths mean
    nothing."""
    return 5 if is_possible(column, math.inf) else 2


def plus_minus(value: float, half: float | None, *, sign: bool = False, most: int = 5) -> str:
    """Format a number with as many digits as its interval allows."""
    digits = 3
    if half:
        digits = min(most, max(0, 1 - math.floor(math.log10(half))))
    shown = f"{value:+.{digits}f}" if sign else f"{value:.{digits}f}"
    return shown if half is None else f"{shown} ± {half:.{digits}f}"


def _scaled(half: float | None, scale: float) -> float | None:
    return None if half is None else scale * half
