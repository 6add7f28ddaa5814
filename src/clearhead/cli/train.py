"""Trains a recipe's model. Text that is not prepared is prepared first. If the run is stopped or
killed at any moment, the same command resumes from the newest checkpoint. Exit codes: 0 if the run
has reached its last step (under torchrun, even if it was stopped); 75 if it was stopped earlier (by
a signal or max_minutes); 2 after a user error: fix it and run again."""

import argparse
from pathlib import Path
from typing import Any

from clearhead.api.training import train, training_plan
from clearhead.cli.calling import add_part_argument, parts, settings
from clearhead.cli.console import TextConsole
from clearhead.cli.options import add_options
from clearhead.cli.prepare import StageLines
from clearhead.cli.progress import add_quiet, training_listener
from clearhead.cli.recipes import add_recipe_arguments, check_prepared, read_recipe
from clearhead.config import Recipe, TrainConfig
from clearhead.config.tasks import TrainOptions
from clearhead.environment import torchrun
from clearhead.errors import ClearheadError
from clearhead.inspection.curves import Curve, curve_text, curves_png
from clearhead.training.plan import TrainingPlan
from clearhead.training.report import Listener
from clearhead.training.signals import STOPPED

CALLS = train
INSTEAD = dict.fromkeys(
    ("--resume", "--resume-from", "--continue"),
    "the same command resumes by itself; leave it out",
)
"""Options of other software that people expect here, and what to do instead."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipe_arguments(parser, out=False)
    add_options(parser, TrainOptions)
    add_part_argument(parser)
    add_quiet(parser)
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
    launched = torchrun()
    if launched is not None and launched.world > 1:  # several ranks would prepare the data at once
        check_prepared(namespace, recipe.name, namespace.prepared)
    first = launched is None or launched.rank == 0
    if namespace.plan:
        arguments: dict[str, Any] = settings(namespace, training_plan) | parts(namespace)
        planned = training_plan(
            recipe,
            **arguments,
            progress=None if namespace.quiet else StageLines(console),
        )
        if first:
            _show_plan(console, recipe, planned, namespace.picture)
        return 0
    listeners: list[Listener] = []
    if first:
        listeners = [training_listener(console, recipe.train, quiet=namespace.quiet)]
    arguments = settings(namespace, train) | parts(namespace)
    trained = train(
        recipe,
        **arguments,
        listeners=listeners,
        progress=None if namespace.quiet else StageLines(console),
    )
    finished = trained.ending is not None and trained.ending.finished
    # torchrun takes any other code as a failure, and would restart a run that was stopped.
    return 0 if finished or launched is not None else STOPPED


def _show_plan(
    console: TextConsole, recipe: Recipe, plan: TrainingPlan, picture: Path | None
) -> None:
    rates = Curve(list(plan.learning_rates), list(plan.learning_rates.values()))
    for line in _plan_lines(recipe.train, plan):
        console.print(line)
    console.print(f"\nlearning rate ({recipe.train.schedule}):\n{curve_text(rates, height=8)}")
    if picture is not None:
        curves_png({"": rates}, picture, title=f"{recipe.name}: learning rate")
        console.print(f"drawn: {picture}")


def _plan_lines(train: TrainConfig, plan: TrainingPlan) -> list[str]:
    memory = ", ".join(f"{name} {size / 1e6:,.1f} MB" for name, size in plan.bytes_of.items())
    share = " on each rank" if torchrun() and train.parallel == "fsdp" else ""
    at_most = "" if train.epochs is None else "at most "
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
