"""Compares every arm of a study with its baseline."""

from collections.abc import Iterable, Mapping
from statistics import mean
from typing import Any, NamedTuple

from clearhead.studies.result_lines import ResultLine, lines_of
from clearhead.studies.statistics import Estimate, Measurements, difference, estimate
from clearhead.studies.study_file import Arm, StudyPlan, higher_is_better

UNEQUAL = {"parameters": 0.01, "tokens": 0.001, "core_seconds": 0.1}
"""How much an arm may differ from the baseline before the table says so, as a share. Processor time
varies by itself: it counts if it differs so much with every seed, at the same commit."""


class ArmResult(NamedTuple):
    """The results of one arm of a study."""

    name: str
    lr: float | None
    """The learning rate that a sweep has chosen."""
    n_seeds: int
    n_failed: int
    """Runs whose loss was not finite; they have no values."""
    figures: dict[str, Estimate]
    """The figures by column."""
    values: dict[str, list[float]]
    """The value of each seed, by column."""
    differences: dict[str, Estimate]
    """The differences from the baseline, by column."""
    other_tokens: list[str]
    """The columns that have no difference, since their unit is a token and the arm has others."""
    costs: dict[str, float]
    """Means over seeds: parameters, tokens, core_seconds."""
    unequal: dict[str, float]
    """The figures that differ from the baseline, and by which share."""

    def verdict(self, column: str) -> str:
        """The verdict: better, worse, none (no difference shown), or same (equal in every run, to
        the last digit); "" without an interval."""
        difference = self.differences.get(column)
        if difference is None or difference.half is None:
            return ""
        if difference.half == 0 and difference.value == 0:
            return "same"
        if not difference.shown:
            return "none"
        return "better" if (difference.value > 0) == higher_is_better(column) else "worse"


class StudyResult(NamedTuple):
    """The results that a study has so far."""

    plan: StudyPlan
    arms: list[ArmResult]
    """The baseline first; arms without a finished run are left out."""
    n_finished: int
    n_runs: int
    lines: list[ResultLine]


def compare(plan: StudyPlan, lines: Iterable[ResultLine]) -> StudyResult:
    """Compare the arms that have finished runs. In a sweep, the learning rate with the lowest mean
    loss on the validation split is chosen; the test split has no part in the choice."""
    current = lines_of(plan, lines)
    chosen = {name: _chosen(plan, name, current) for name in plan.names}
    base_arm = chosen[plan.baseline]
    base = _runs(plan, base_arm, current)
    arms: list[ArmResult] = []
    for name in plan.names:
        arm = chosen[name]
        runs = _runs(plan, arm, current)
        if not runs:
            continue
        costs, base_costs = _costs(runs), _costs(base)
        others = {} if arm is base_arm else base
        other_tokens = [c for c in plan.columns if not plan.is_comparable(name, c)]
        pairs = {
            column: _pair(column, others, runs, plan.is_paired(name))
            for column in plan.columns
            if column not in other_tokens
        }
        figures = {column: _figure(column, runs) for column in plan.columns}
        arms.append(
            ArmResult(
                name=name,
                lr=arm.lr,
                n_seeds=len(runs),
                n_failed=sum(bool(line.get("failed")) for line in runs.values()),
                figures={c: estimate(figure) for c, figure in figures.items() if figure.values},
                values={c: list(figure.values) for c, figure in figures.items()},
                differences={c: pair for c, pair in pairs.items() if pair is not None},
                other_tokens=other_tokens,
                costs=costs,
                unequal={
                    cost: costs[cost] / base_costs[cost] - 1
                    for cost, limit in UNEQUAL.items()
                    if base_costs.get(cost) and cost in costs
                    and abs(costs[cost] / base_costs[cost] - 1) > limit
                    and (cost != "core_seconds" or _differ_in_time(base, runs, limit))
                },
            )
        )  # fmt: skip
    ordered = [
        current[arm.key, seed]
        for seed in plan.seeds
        for arm in plan.arms
        if (arm.key, seed) in current
    ]
    return StudyResult(plan, arms, len(ordered), len(plan.arms) * len(plan.seeds), ordered)


def _chosen(plan: StudyPlan, name: str, current: Mapping[Any, ResultLine]) -> Arm:
    arms = [arm for arm in plan.arms if arm.name == name]
    losses: dict[float, Arm] = {}
    for arm in arms:
        valid_losses = [line.get("valid_loss") for line in _runs(plan, arm, current).values()]
        known_losses = [loss for loss in valid_losses if loss is not None]
        if known_losses and len(known_losses) == len(valid_losses):
            losses.setdefault(mean(known_losses), arm)
    return losses[min(losses)] if losses else arms[0]


def _runs(
    plan: StudyPlan, arm: Arm, current: Mapping[tuple[str, int], ResultLine]
) -> dict[int, ResultLine]:
    return {seed: current[arm.key, seed] for seed in plan.seeds if (arm.key, seed) in current}


def _pair(
    column: str, base: Mapping[int, ResultLine], runs: Mapping[int, ResultLine], paired: bool
) -> Estimate | None:
    if paired:
        usable = [s for s in runs if s in base and _has(column, runs[s]) and _has(column, base[s])]
        base, runs = ({seed: lines[seed] for seed in usable} for lines in (base, runs))
    first, second = _figure(column, base), _figure(column, runs)
    if not first.values or not second.values:
        return None
    return difference(first, second, paired=paired)


def _has(column: str, line: ResultLine) -> bool:
    return line["values"].get(column) is not None


def _figure(column: str, runs: Mapping[int, ResultLine]) -> Measurements:
    usable = [line for line in runs.values() if _has(column, line)]
    left_out = [line.get("left_out", {}).get(column) for line in usable]
    n_lines = [line.get("n_lines", {}).get(column) for line in usable]
    return Measurements(
        [line["values"][column] for line in usable],
        None if not left_out or None in left_out else left_out,
        n_lines[0] if n_lines else None,
    )


def _differ_in_time(
    base: Mapping[int, ResultLine], runs: Mapping[int, ResultLine], limit: float
) -> bool:
    both = [seed for seed in runs if seed in base]
    commits = {line.get("clearhead") for seed in both for line in (base[seed], runs[seed])}
    times = [(base[seed]["core_seconds"], runs[seed]["core_seconds"]) for seed in both]
    slower = all(mine > (1 + limit) * other for other, mine in times)
    faster = all(mine < (1 - limit) * other for other, mine in times)
    return len(commits) == 1 and (slower or faster)


def _costs(runs: Mapping[int, ResultLine]) -> dict[str, float]:
    lines = runs.values()
    return {
        cost: mean(line[cost] for line in lines)
        for cost in UNEQUAL
        if lines and all(line.get(cost) is not None for line in lines)
    }
