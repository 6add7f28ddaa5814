"""A plan as text: every figure with its origin."""

from collections.abc import Iterable

from clearhead.config.recipe import toml_value
from clearhead.errors import Message, recipe_key, setting, with_marks
from clearhead.scale.figures import Figure
from clearhead.scale.layouts import USABLE, LayoutCandidate
from clearhead.scale.memory import RankLayout
from clearhead.scale.planned import PlannedRun
from clearhead.scale.published import PublishedFamily

GIB = 2**30


def plan_text(plan: PlannedRun) -> Message:
    """Layout, memory, figures and warnings."""
    head = (
        f"{plan.name} on {plan.gpus:,} × {plan.kind.name}: sequences of {plan.length:,} tokens, "
        f"{plan.batch_tokens:,} tokens a step"
    )
    shown = plan.best or plan.least
    lines = [
        head,
        "",
        *_layout_lines(plan, shown),
        "",
        *_memory_lines(plan, shown),
        "",
        *(
            f"{name:<18}{readable(figure):>20}  {figure.origin:<9} {with_marks(figure.why)}"
            for name, figure in plan.figures.items()
        ),
        "",
        *_warnings(plan, shown),
    ]
    return Message("\n".join(lines).rstrip())


def _layout_lines(plan: PlannedRun, shown: LayoutCandidate) -> list[str]:
    layout, count = shown.layout, sum(candidate.fits for candidate in plan.candidates)
    verdict = (
        f"fits: {count} of {len(plan.candidates)} layouts; the fastest of them:"
        if plan.best is not None
        else f"does not fit: none of {len(plan.candidates)} layouts; the one with least memory:"
    )
    return [
        verdict,
        f"  replicas {layout.replicas} × shards {layout.shard} × tensor parallel {layout.tensor}; "
        f"micro-batches {layout.micro_batches} × sequences {layout.rows}, "
        + ("with recompute" if layout.recompute else "without recompute"),
        "  " + _options(plan, layout),
    ]


def _options(plan: PlannedRun, layout: RankLayout) -> str:
    """The settings of the run that are not written already; `parallel` and `recompute` always."""
    written = vars(plan.written)
    planned = {**layout.train, **vars(plan.train), **layout.train}  # the layout's come first
    return " ".join(
        recipe_key(f"train.{key}", toml_value(value))
        for key, value in planned.items()
        if value != written[key] or key in ("parallel", "recompute")
    )


def _memory_lines(plan: PlannedRun, shown: LayoutCandidate) -> list[str]:
    """The activations of the chosen layout, and what the other choice of recompute would keep."""
    memory, layout = shown.memory, shown.layout
    held = memory.weights + memory.optimizer
    rows = {
        "weights": [memory.weights] * 3,
        "optimizer": [memory.optimizer] * 3,
        "gradients": [moment.gradients for moment in memory.moments],
        "activations": [moment.activations for moment in memory.moments],
        "communication": [moment.communication for moment in memory.moments],
        "together": [held + moment.total for moment in memory.moments],
    }
    moments = ("at the loss", "in the layers", "at the end")
    lines = ["GiB on a rank, computed    " + "".join(f"{name:>15}" for name in moments)]
    for name, sizes in rows.items():
        lines.append(f"  {name:<25}" + "".join(f"{size / GIB:>15.2f}" for size in sizes))
    usable = USABLE * plan.kind.memory / GIB
    lines.append(f"  {'usable':<25}{usable:>15.2f}  (assumed: {USABLE:.0%} of the memory)")
    other = next(
        candidate
        for candidate in plan.candidates
        if candidate.layout != layout
        and _but_for_recompute(candidate) == _but_for_recompute(shown)
        and candidate.layout.recompute != layout.recompute
    )
    word = "without" if layout.recompute else "with"
    lines.append(
        f"  activations {word} recompute: {other.memory.at_loss.activations / GIB:.2f} at the loss"
    )
    return lines


def _but_for_recompute(candidate: LayoutCandidate) -> tuple[int, ...]:
    layout = candidate.layout
    return (layout.replicas, layout.shard, layout.tensor, layout.rows, layout.micro_batches)


def _warnings(plan: PlannedRun, shown: LayoutCandidate) -> Iterable[str]:
    if shown.communication_seconds > shown.compute_seconds:
        times = shown.communication_seconds / shown.compute_seconds
        yield (
            f"the network is the limit: {times:.1f} times as long as the computation of a step; "
            f"the utilisation will not be reached (try a larger {setting('batch_tokens')})"
        )
    if plan.train.precision == "fp32" and plan.utilisation.name != "given":
        yield (
            "the peak is that of bf16, and this run computes in fp32, which is slower: speed, time "
            f"and cost are too optimistic (try {recipe_key('train.precision', repr('bf16'))}, or "
            f"your own {setting('utilisation')})"
        )
    if plan.utilisation.includes_interruptions:
        yield "the utilisation is of whole runs: goodput is in it, and not applied again"


def published_lines(families: Iterable[PublishedFamily]) -> list[str]:
    """How well one utilisation for each family predicts the published times."""
    lines = ["utilisations that published runs imply, and the error of a time predicted with them"]
    for family in families:
        what = "whole runs" if family.includes_interruptions else "steps"
        lines += [
            "",
            f"{family.name}: {family.utilisation:.1%} of {family.kind}, {what}, "
            f"convention {family.convention!r}",
            f"  {family.source}",
        ]
        for run in family.runs:
            reported = "" if run.reported is None else f", its source says {run.reported:.1%}"
            miss = "" if run.fitted else " (not fitted)"
            lines.append(
                f"  {run.name:<22}implied {run.utilisation:.1%}{reported}; "
                f"time {family.error(run):+.1%}{miss}"
            )
    return lines


def readable(figure: Figure) -> str:
    """The value in a unit that people read."""
    value = figure.value
    match figure.unit:
        case "bytes":
            return _scaled(value, ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB")), "B")
        case "s":
            return _scaled(value, ((86_400, "days"), (3600, "h"), (60, "min")), "s")
        case "%":
            return f"{value:.1%}"
        case "$":
            return f"${value:,.2f}" if value < 100 else f"${value:,.0f}"
        case "steps":
            return f"{value:,.0f} steps"
        case "":
            return f"{value:,.0f}" if value < 1e15 else f"{value:.3g}"
        case unit:
            return f"{value:,.2f} {unit}" if value < 100 else f"{value:,.0f} {unit}"


def _scaled(value: float, units: tuple[tuple[float, str], ...], smallest: str) -> str:
    for size, unit in units:
        if value >= size:
            return f"{value / size:,.1f} {unit}"
    return f"{value:,.1f} {smallest}"
