"""Shows a study's result as text: a table for each measure, with the differences drawn below it."""

from collections.abc import Sequence

from clearhead.studies.comparing import ArmResult, StudyResult
from clearhead.studies.wording import (
    budget,
    chance_of,
    difference_of,
    finding_of,
    heading,
    unequal_of,
    value_of,
    words,
)

WIDTH = 41  # characters of the drawing


def table(result: StudyResult, *, times: bool = True) -> str:
    """Return the table of all measures. Without `times`, it leaves out everything that would differ
    if the study ran again."""
    plan = result.plan
    lines = [
        f"{plan.title['en']}: {len(plan.names)} arms, {len(plan.seeds)} seeds, "
        f"{budget(plan, 'en')} each; {result.n_finished} of {result.n_runs} runs finished"
    ]
    for column in plan.columns:
        shown = [arm for arm in result.arms if column in arm.figures or arm.n_failed]
        lines += ["", heading(column, "en")]
        if not shown:
            lines.append("  (no finished run yet)")
            continue
        lines += _aligned([_head(plan.baseline), *(_row(arm, column, times) for arm in shown)])
        drawn = [arm for arm in shown if column in arm.differences]
        if drawn:
            lines += ["", *_plot(drawn, column, plan.baseline)]
    if chance := chance_of(result, "en", "in_tables"):
        lines += ["", chance]
    return "\n".join(lines)


def _head(baseline: str) -> list[str]:
    say = words("en")
    difference = say["difference"].format(baseline=baseline)
    return [say["arm"], say["seeds"], say["mean"], difference, say["finding"], say["unequal"]]


def _row(arm: ArmResult, column: str, times: bool) -> list[str]:
    name = arm.name if arm.lr is None else f"{arm.name} (lr {arm.lr:g})"
    return [
        name,
        str(arm.n_seeds),
        value_of(arm, column),
        difference_of(arm, column),
        finding_of(arm, column, "en"),
        unequal_of(arm, "en", times=times),
    ]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, cells)) for cells in zip(*rows)]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
        for row in rows
    ]


def _plot(arms: Sequence[ArmResult], column: str, baseline: str) -> list[str]:
    """Differences from the baseline: o is the mean, dashes are the interval, | is no difference."""
    differences = {arm.name: arm.differences[column] for arm in arms}
    reach = (
        max(abs(difference.value) + (difference.half or 0.0) for difference in differences.values())
        or 1.0
    )

    def place(x: float) -> int:
        return round((x / reach + 1) / 2 * (WIDTH - 1))

    width = max(map(len, differences))
    lines = [f"  {'':<{width}}  {'difference from ' + baseline:^{WIDTH}}"]
    for name, difference in differences.items():
        half = difference.half or 0.0
        cells = [" "] * WIDTH
        for at in range(place(difference.value - half), place(difference.value + half) + 1):
            cells[at] = "-"
        cells[WIDTH // 2] = "|"
        cells[place(difference.value)] = "o"
        lines.append(f"  {name:<{width}}  {''.join(cells)}".rstrip())
    return lines
