"""Trains a recipe's model on its prepared data. Stopped or killed at any moment, the same command
goes on where the newest checkpoint stands. Exit codes: 0 the run has reached its end (under
torchrun, or was stopped); 75 it was stopped before (a signal, max_minutes); 2 something is for you
to mend."""

import argparse
import shutil
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from clearhead.cli.recipes import PREPARED, add_recipe_arguments, open_prepared, read_recipe
from clearhead.config import Recipe, recipe_toml
from clearhead.data.corpus import Corpus
from clearhead.environment import keep_freed_memory, torchrun
from clearhead.errors import ClearheadError
from clearhead.evaluation.classification import accuracy
from clearhead.files import write_whole
from clearhead.inspection.curves import Curve, curve_text, curves_png
from clearhead.interop.labels import Labels, write_labels
from clearhead.interop.model_folder import TokenIds, save_model
from clearhead.models import MaskedLM, Model
from clearhead.training.averaging import borrowed
from clearhead.training.changes import recipe_facts
from clearhead.training.distributed import Ranks, joined, objective_of, whole_model
from clearhead.training.loop import Ending, train
from clearhead.training.plan import TrainingPlan, make_plan
from clearhead.training.report import (
    Listener,
    MetricsLine,
    Reporter,
    RunFiles,
    Trackers,
    step_line,
    validation_line,
)
from clearhead.training.run import Run, open_run, own
from clearhead.training.signals import STOPPED, StopRequests
from clearhead.training.validation import Measure

RUNS = Path("runs")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipe_arguments(parser, out=False)
    parser.add_argument(
        "--prepared",
        type=Path,
        metavar="FOLDER",
        help=f"the prepared data (default: {PREPARED}/RECIPE)",
    )
    parser.add_argument(
        "--folder", type=Path, metavar="FOLDER", help=f"the run (default: {RUNS}/RECIPE)"
    )
    parser.add_argument(
        "--plan",
        action="store_true",
        help="take a few steps, say what the whole would take, and leave nothing",
    )
    parser.add_argument(
        "--picture", type=Path, metavar="FILE.png", help="with --plan: draw the learning rate there"
    )


def run(namespace: argparse.Namespace) -> int:
    recipe = read_recipe(namespace)
    folder = namespace.folder or RUNS / recipe.name
    console = Console(highlight=False)
    keep_freed_memory()
    prepared = namespace.prepared or PREPARED / recipe.name
    corpus = open_prepared(namespace, prepared)
    corpus.manifest.check_recipe(prepared, recipe.data)
    with joined(recipe.train) as ranks:
        if namespace.plan:
            return _plan(console, recipe, corpus, ranks, namespace.picture)
        with own(folder) if ranks.first else nullcontext():
            ending = _train(console, recipe, corpus, folder, ranks)
    # torchrun takes any other code for a failure, and would start a stopped run again.
    return 0 if ending.finished or torchrun() is not None else STOPPED


def _train(console: Console, recipe: Recipe, corpus: Corpus, folder: Path, ranks: Ranks) -> Ending:
    report = Reporter()
    files = bar = None
    if ranks.first:
        files = RunFiles(folder, log_every=recipe.train.log_every)
        bar = _Bar(console, recipe) if console.is_terminal else _Lines(recipe.train.log_every)
        report.listeners += [files, bar]
    try:
        run = open_run(recipe, corpus, folder, ranks, report.say)
        if files is not None:
            files.forget_after(run.state.step)
            write_whole(folder / "recipe.toml", recipe_toml(run.recipe))
            report.listeners += _trackers(run)
        report.say(_introduction(run, folder))
        ending = train(run, report, measure=_measure(run, corpus))
        with StopRequests():  # a signal waits until the model is written
            _publish(run, corpus, report)
        report.say(_farewell(run, ending))
        return ending
    except ClearheadError as error:
        report.say(f"error: {error}")
        raise
    finally:
        report.close()


def _measure(run: Run, corpus: Corpus) -> Measure | None:
    """What validation says of a classifier beside its loss."""
    if corpus.manifest.task != "classification" or run.valid is None:
        return None

    def measure(model: Model) -> dict[str, float]:
        assert isinstance(model, MaskedLM)
        return {"accuracy": accuracy(model, corpus, "valid").value}

    return measure


def _trackers(run: Run) -> list[Listener]:
    config = run.recipe.train
    if not config.trackers:
        return []
    return [Trackers(config.trackers, run.folder, recipe_facts(run.recipe), config.log_every)]


def _introduction(run: Run, folder: Path) -> str:
    total = sum(p.numel() for p in run.objective.parameters())
    ranks = run.ranks
    many = f", {ranks.world} ranks ({run.recipe.train.parallel})" if ranks.world > 1 else ""
    return f"{run.recipe.name}: {total:,} parameters on {ranks.device}{many}; run: {folder}"


def _farewell(run: Run, ending: Ending) -> str:
    state, told = run.state, f"the model is in {run.folder / 'model'}."
    if state.best is not None:
        told += f" Best {run.recipe.train.metric}: {state.best:.4f} at step {state.best_step:,}."
    return told if ending.finished else f"{told} The same command goes on."


def _publish(run: Run, corpus: Corpus, report: Reporter) -> None:
    """Write the model folder, in place of an older one."""
    with borrowed(objective_of(run.objective), run.published_weights(report.say)):
        model = whole_model(run.objective, run.ranks)
        if model is None:
            return
        new, place, old = (run.folder / name for name in (".model.new", "model", ".model.old"))
        if old.exists() and not place.exists():  # killed between the two renames
            old.rename(place)
        shutil.rmtree(new, ignore_errors=True)
        tokenizers = list(corpus.tokenizers.values())
        ids = TokenIds(
            bos=tokenizers[-1].bos_id,
            eos=tokenizers[-1].eos_id,
            decoder_start=tokenizers[-1].bos_id,
        )
        save_model(model, new, ids=ids, tokenizer=corpus.folder)
        if corpus.manifest.task == "classification":
            mask = tokenizers[0].mask_id
            assert mask is not None
            write_labels(new, Labels(mask=mask, ids=corpus.labels))
        shutil.rmtree(old, ignore_errors=True)
        if place.exists():
            place.rename(old)
        new.rename(place)
        shutil.rmtree(old, ignore_errors=True)


class _Bar:
    """On a terminal: one line that moves, and below it what was said."""

    def __init__(self, console: Console, recipe: Recipe) -> None:
        self.progress = Progress(
            TextColumn("step {task.completed:,.0f}/{task.total:,.0f}"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[told]}"),
            TimeRemainingColumn(compact=True),
            console=console,
        )
        self.task = self.progress.add_task("", total=recipe.train.steps, told="", start=True)
        self.progress.start()

    def step(self, record: MetricsLine) -> None:
        if record.get("skipped"):
            self.say(step_line(record))
            return
        told = (
            f"loss {record['loss']:.3f}  {record['tokens_per_second']:,.0f} tokens/s  "
            f"{record['utilisation']:.0%} of peak"
        )
        self.progress.update(self.task, completed=record["step"], told=told)

    def validation(self, record: MetricsLine) -> None:
        self.say(validation_line(record))

    def say(self, text: str) -> None:
        self.progress.console.print(text, markup=False)

    def close(self) -> None:
        self.progress.stop()


class _Lines:
    """Where nobody watches: plain lines."""

    def __init__(self, log_every: int) -> None:
        self.log_every = log_every

    def step(self, record: MetricsLine) -> None:
        if record["step"] % self.log_every == 0 or record.get("skipped"):
            self.say(step_line(record))

    def validation(self, record: MetricsLine) -> None:
        self.say(validation_line(record))

    def say(self, text: str) -> None:
        print(text, flush=True)

    def close(self) -> None:
        pass


def _plan(
    console: Console, recipe: Recipe, corpus: Corpus, ranks: Ranks, picture: Path | None
) -> int:
    run = open_run(recipe, corpus, None, ranks, console.print)
    plan = make_plan(run)
    if not ranks.first:
        return 0
    rates = Curve(range(1, plan.steps + 1), plan.learning_rates)
    for line in _plan_lines(run, plan):
        console.print(line)
    console.print(f"\nlearning rate ({recipe.train.schedule}):\n{curve_text(rates, height=8)}")
    if picture is not None:
        curves_png({"": rates}, picture, title=f"{recipe.name}: learning rate")
        console.print(f"drawn: {picture}")
    return 0


def _plan_lines(run: Run, plan: TrainingPlan) -> list[str]:
    memory = ", ".join(f"{name} {size / 1e6:,.1f} MB" for name, size in plan.bytes_of.items())
    share = " on each rank" if run.ranks.sharded else ""
    at_most = "" if run.recipe.train.epochs is None else "at most "
    return [
        f"{'parameters':<14}{plan.parameters:,} ({plan.without_embeddings:,} without embeddings)",
        f"{'memory':<14}{memory}{share}; {plan.peak_bytes / 1e6:,.0f} MB at most so far, all told",
        f"{'a step':<14}{plan.targets_per_step:,.0f} tokens to guess, "
        f"{plan.seconds_per_step:.3f} s, {plan.tokens_per_second:,.0f} tokens/s, "
        f"{plan.utilisation:.0%} of this machine's matrix peak",
        f"{'the run':<14}{at_most}{plan.steps:,} steps, "
        f"{plan.steps * plan.targets_per_step:,.0f} tokens, "
        f"about {_duration(plan.hours)} (without validation)",
    ]


def _duration(hours: float) -> str:
    minutes = hours * 60
    if minutes < 2:
        return f"{minutes * 60:.0f} s"
    return f"{minutes:.0f} minutes" if hours < 3 else f"{hours:.1f} hours"
