"""Trains a recipe's model; text that is not prepared is prepared first. Stopped or killed at any
moment, the same command resumes from the newest checkpoint. Exit codes: 0: the run has reached its
last step (under torchrun also: it was stopped); 75: it was stopped earlier (by a signal or
max_minutes); 2: user error: fix it and run again."""

import argparse
from pathlib import Path

from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from clearhead.api.training import train, training_plan
from clearhead.cli.calling import add_part_argument, parts, settings
from clearhead.cli.console import TextConsole
from clearhead.cli.options import add_options
from clearhead.cli.prepare import STAGES
from clearhead.cli.recipes import add_recipe_arguments, check_prepared, read_recipe
from clearhead.config import Recipe
from clearhead.config.tasks import TrainOptions
from clearhead.data.shards import Progress
from clearhead.environment import torchrun
from clearhead.errors import ClearheadError
from clearhead.inspection.curves import Curve, curve_text, curves_png
from clearhead.training.plan import TrainingPlan
from clearhead.training.report import Listener, MetricsLine, step_line, validation_line
from clearhead.training.signals import STOPPED

CALLS = train


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipe_arguments(parser, out=False)
    add_options(parser, TrainOptions)
    add_part_argument(parser)
    parser.add_argument(
        "--plan",
        action="store_true",
        help="only estimate memory and time of the run, from a few steps that are discarded",
    )
    parser.add_argument(
        "--picture",
        type=Path,
        metavar="FILE.png",
        help="with --plan: draw the learning rate to this file",
    )


def run(namespace: argparse.Namespace) -> int:
    if namespace.picture is not None and not namespace.plan:
        raise ClearheadError("--picture belongs to --plan; leave it out, or add --plan")
    recipe = read_recipe(namespace)
    console = TextConsole()
    place = torchrun()
    if place is not None and place.world > 1:  # ranks would prepare them all at once
        check_prepared(namespace, recipe, namespace.prepared)
    first = place is None or place.rank == 0
    if namespace.plan:
        planned = training_plan(
            recipe,
            **settings(namespace, training_plan) | parts(namespace),
            progress=_Stages(console),
        )
        if first:
            _show_plan(console, recipe, planned, namespace.picture)
        return 0
    listeners: list[Listener] = []
    if first:
        listeners = [_Bar(console, recipe) if console.is_terminal else _Lines(recipe)]
    found = train(
        recipe,
        **settings(namespace, train) | parts(namespace),
        listeners=listeners,
        progress=_Stages(console),
    )
    finished = found.ending is not None and found.ending.finished
    # torchrun takes any other code for a failure, and would start a stopped run again.
    return 0 if finished or place is not None else STOPPED


class _Stages:
    """Prints a line for each stage of preparing."""

    def __init__(self, console: TextConsole) -> None:
        self.console, self.begun = console, set[str]()

    def __call__(self, progress: Progress) -> None:
        if progress.stage not in self.begun:
            self.begun.add(progress.stage)
            what = STAGES.get(progress.stage, f"encoding {progress.stage}")
            self.console.print(f"preparing: {what}")


class _Bar:
    """On a terminal: a progress bar, with messages above it."""

    def __init__(self, console: TextConsole, recipe: Recipe) -> None:
        self.progress = Bars(
            TextColumn("step {task.completed:,.0f}/{task.total:,.0f}"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[status]}", markup=False),
            TimeRemainingColumn(compact=True),
            console=console,
        )
        self.task = self.progress.add_task("", total=recipe.train.steps, status="", start=True)

    def step(self, record: MetricsLine) -> None:
        if record.get("skipped"):
            self.say(step_line(record))
            return
        status = (
            f"loss {record['loss']:.3f}  {record['tokens_per_second']:,.0f} tokens/s  "
            f"{record['utilisation']:.0%} of peak"
        )
        self.progress.start()
        self.progress.update(self.task, completed=record["step"], status=status)

    def validation(self, record: MetricsLine) -> None:
        self.say(validation_line(record))

    def say(self, text: str) -> None:
        self.progress.console.print(text)

    def close(self) -> None:
        self.progress.stop()


class _Lines:
    """Without a terminal: plain lines."""

    def __init__(self, recipe: Recipe) -> None:
        self.log_every = recipe.train.log_every

    def step(self, record: MetricsLine) -> None:
        if record["step"] % self.log_every == 0 or record.get("skipped"):
            self.say(step_line(record))

    def validation(self, record: MetricsLine) -> None:
        self.say(validation_line(record))

    def say(self, text: str) -> None:
        print(text, flush=True)

    def close(self) -> None:
        pass


def _show_plan(
    console: TextConsole, recipe: Recipe, found: TrainingPlan, picture: Path | None
) -> None:
    rates = Curve(list(found.learning_rates), list(found.learning_rates.values()))
    for line in _plan_lines(recipe, found):
        console.print(line)
    console.print(f"\nlearning rate ({recipe.train.schedule}):\n{curve_text(rates, height=8)}")
    if picture is not None:
        curves_png({"": rates}, picture, title=f"{recipe.name}: learning rate")
        console.print(f"drawn: {picture}")


def _plan_lines(recipe: Recipe, plan: TrainingPlan) -> list[str]:
    memory = ", ".join(f"{name} {size / 1e6:,.1f} MB" for name, size in plan.bytes_of.items())
    share = " on each rank" if torchrun() and recipe.train.parallel == "fsdp" else ""
    at_most = "" if recipe.train.epochs is None else "at most "
    return [
        f"{'parameters':<14}{plan.parameters:,} ({plan.without_embeddings:,} without embeddings)",
        f"{'memory':<14}{memory}{share}; peak {plan.peak_bytes / 1e6:,.0f} MB",
        f"{'a step':<14}{plan.targets_per_step:,.0f} target tokens, "
        f"{plan.seconds_per_step:.3f} s, {plan.tokens_per_second:,.0f} tokens/s, "
        f"{plan.utilisation:.0%} of this machine's matrix peak",
        *(
            []
            if plan.threads is None
            else [str(plan.threads).replace("threads: ", f"{'threads':<14}")]
        ),
        f"{'the run':<14}{at_most}{plan.steps:,} steps, "
        f"{plan.steps * plan.targets_per_step:,.0f} tokens, "
        f"about {_duration(plan.hours)} (without validation)",
    ]


def _duration(hours: float) -> str:
    minutes = hours * 60
    if minutes < 2:
        return f"{minutes * 60:.0f} s"
    return f"{minutes:.0f} minutes" if hours < 3 else f"{hours:.1f} hours"
