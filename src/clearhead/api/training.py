"""Trains a recipe's model, with everything that `clearhead train` does."""

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from inspect import signature
from pathlib import Path
from typing import Never

import torch

from clearhead.api.keywords import takes
from clearhead.api.locating import given_or_shipped
from clearhead.api.own_parts import PartGiven, own_parts
from clearhead.api.paths import PREPARED, RUNS
from clearhead.api.preparing import is_prepared, prepare, refuse_run_or_model
from clearhead.api.recipes import RecipeGiven, as_recipe, refuse_recipe_keys
from clearhead.api.trained_run import TrainedRun
from clearhead.config import Recipe, recipe_toml
from clearhead.config.checks import as_folder, as_path
from clearhead.config.tasks import TrainOptions
from clearhead.data.corpus import Corpus, open_corpus
from clearhead.data.same_text import check_text_of_data, note_text
from clearhead.data.shards import Progress
from clearhead.decoding.opening import RECIPE
from clearhead.environment import keep_freed_memory, torchrun
from clearhead.errors import ClearheadError, ConfigError, DataError, function
from clearhead.evaluation.classification import accuracy
from clearhead.evaluation.samples import WatchedContinuations
from clearhead.evaluation.translation import SCORES, WatchedTranslations
from clearhead.files import write_whole
from clearhead.models import Classifier, MaskedLM, Model
from clearhead.models.own_parts import OwnParts
from clearhead.training.beforehand import check_space
from clearhead.training.changes import recipe_facts
from clearhead.training.distributed import Ranks, joined_ranks
from clearhead.training.loop import Ending
from clearhead.training.loop import train as train_run
from clearhead.training.plan import TrainingPlan
from clearhead.training.publishing import publish
from clearhead.training.report import (
    CHECKPOINTS,
    Listener,
    MetricsLine,
    Reporter,
    RunFiles,
    Trackers,
    check_listeners,
    step_line,
    validation_line,
)
from clearhead.training.run import Run, locked_run_folder, open_run
from clearhead.training.signals import StopRequests
from clearhead.training.threads import choose_threads, threads_of_run
from clearhead.training.trials import Trials
from clearhead.training.validation import Measure

_log = logging.getLogger("clearhead")


@takes(TrainOptions)
def train(
    recipe: RecipeGiven,
    *,
    folder: str | Path | None = TrainOptions.folder,
    prepared: str | Path | None = TrainOptions.prepared,
    threads: int | None = TrainOptions.threads,
    attention: PartGiven = None,
    feed_forward: PartGiven = None,
    norm: PartGiven = None,
    positions: PartGiven = None,
    listeners: Sequence[Listener] | None = None,
    progress: Callable[[Progress], None] | None = None,
    **others: Never,
) -> TrainedRun:
    """Train a recipe's model, and return the run, whose model takes and returns text.

    If the data are not prepared, `train` prepares them first. A run that was stopped or killed
    resumes from its newest checkpoint. Your own parts replace those that the recipe names: see
    `build_model`. `listeners` receive every step; without listeners, `train` logs what `clearhead
    train` prints (logger "clearhead"). `progress` receives the progress of preparing.
    """
    refuse_recipe_keys("train", others, [*signature(train).parameters])
    resolved = as_recipe(recipe)
    _refuse_shipped(resolved.train.start_from)
    TrainOptions(threads=threads)
    check_listeners(listeners)
    parts = own_parts(
        attention=attention, feed_forward=feed_forward, norm=norm, positions=positions
    )
    run_folder = as_folder("folder", folder, RUNS / resolved.name)
    resolved, corpus, note = _open_data(resolved, prepared, progress)
    # A run must be resumed with the text with which it began.
    if not (run_folder / CHECKPOINTS).exists():
        check_text_of_data(corpus, resolved.data)
    keep_freed_memory()
    with joined_ranks(resolved.train) as ranks:
        receivers: Sequence[Listener] = ()
        if ranks.first:
            receivers = [_LogLines(resolved.train.log_every)] if listeners is None else listeners
        with locked_run_folder(run_folder) if ranks.first else nullcontext():
            job = _TrainingJob(
                recipe=resolved,
                corpus=corpus,
                folder=run_folder,
                parts=parts,
                listeners=receivers,
                note=note,
                threads=threads,
            )
            ending = _train(job, ranks)
        ranks.gather(None)  # no process may open the model before it is written
    return TrainedRun(run_folder, own_parts=parts, ending=ending)


def training_plan(
    recipe: RecipeGiven,
    *,
    prepared: str | Path | None = TrainOptions.prepared,
    threads: int | None = TrainOptions.threads,
    attention: PartGiven = None,
    feed_forward: PartGiven = None,
    norm: PartGiven = None,
    positions: PartGiven = None,
    progress: Callable[[Progress], None] | None = None,
    **others: Never,
) -> TrainingPlan:
    """Estimate what a run takes on this machine: sizes from arithmetic, and time from a few real
    steps, which are discarded. If the data are not prepared, they are prepared first; nothing else
    is written. The arguments are those of `train`. For many accelerators, use `plan`."""
    refuse_recipe_keys("training_plan", others, [*signature(training_plan).parameters])
    resolved = as_recipe(recipe)
    _refuse_shipped(resolved.train.start_from)
    TrainOptions(threads=threads)
    parts = own_parts(
        attention=attention, feed_forward=feed_forward, norm=norm, positions=positions
    )
    resolved, corpus, _ = _open_data(resolved, prepared, progress)
    return Trials(threads, own_parts=parts).plan(resolved, corpus)


def _refuse_shipped(start: str | None) -> None:
    """Raises if training is to start from a shipped model, which is named by its folder here."""
    if start is not None and (folder := given_or_shipped(Path(start))) != Path(start):
        raise ConfigError(
            "train.start_from", start, "is a shipped model, and the key takes a folder",
            f"make a recipe of its shape with {function('recipe_for')}, whose option `start` (on "
            f"the command line, `from`) takes the name, or give its folder: {str(folder)!r}",
        )  # fmt: skip


def _open_data(
    recipe: Recipe,
    folder: str | Path | None,
    progress: Callable[[Progress], None] | None,
) -> tuple[Recipe, Corpus, str]:
    """Return the recipe with the settings with which its data were prepared, the data, and a note
    about settings that are not the recipe's own."""
    path = as_path("prepared", folder, PREPARED / recipe.name)
    refuse_run_or_model(path, "prepared", recipe.name)
    if not is_prepared(path):
        launched = torchrun()
        if launched is not None and launched.world > 1:
            raise DataError(
                f"{path} holds no prepared data, and several ranks would prepare them at once; "
                f"prepare them first: {function('prepare')}"
            )
        _log.info("preparing %s", path)
        corpus = prepare(recipe, folder=path, progress=progress)
        return recipe, corpus, _left_out(corpus)
    corpus = open_corpus(path)
    recorded = corpus.manifest.given(path, recipe.data)
    recipe = replace(recipe, data=replace(recipe.data, **recorded))
    settings = ", ".join(f"data.{key} = {value!r}" for key, value in recorded.items())
    return recipe, corpus, f"as {path} was prepared: {settings}" if recorded else ""


def _left_out(corpus: Corpus) -> str:
    """Describe what preparing has skipped. The text is empty if it skipped nothing, or only blank
    lines."""
    counts = [
        f"{count:,} {kind} in {split}"
        for split, facts in corpus.manifest.splits.items()
        for kind, count in facts.skipped.items()
        if kind != "blank"
    ]
    return f"skipped of the text: {', '.join(counts)}" if counts else ""


@dataclass(frozen=True, kw_only=True)
class _TrainingJob:
    """What is trained, where, and who follows it."""

    recipe: Recipe
    corpus: Corpus
    folder: Path
    parts: OwnParts
    listeners: Sequence[Listener]
    note: str
    """A line for the log about settings that are not the recipe's own; may be empty."""
    threads: int | None


def _train(job: _TrainingJob, ranks: Ranks) -> Ending:
    recipe, corpus, folder = job.recipe, job.corpus, job.folder
    report = Reporter(job.listeners)
    files = None
    before = torch.get_num_threads()
    try:
        if ranks.first:
            files = RunFiles(folder, log_every=recipe.train.log_every)
            report.put_first(files)
        choice, warning = threads_of_run(
            folder,
            job.threads,
            ranks,
            lambda: choose_threads(recipe, corpus, ranks, job.parts),
            has_begun=(folder / CHECKPOINTS).exists(),
        )
        torch.set_num_threads(choice.threads)
        run = open_run(recipe, corpus, folder, ranks, report.say, own_parts=job.parts)
        if files is not None:
            run.follow(files, report.say)
            write_whole(folder / RECIPE, recipe_toml(run.recipe))
            note_text(folder, corpus, begins=run.state.step == 0)
            report.listeners += _trackers(run)
            check_space(folder, run.objective, recipe.train)
        report.say(_introduction(run, folder))
        report.say(str(choice))
        if warning:
            report.say(warning)
        if job.note:
            report.say(job.note)
        measure, measured = _measure(run, corpus)
        ending = train_run(
            run, report, measure=measure, measured=measured, planned_seconds=choice.planned
        )
        with StopRequests():  # a signal waits until the model is written
            publish(run, corpus, report.say)
        report.say(_farewell(run, ending))
        return ending
    except ClearheadError as error:
        if files is not None:  # the caller shows the error; the log keeps it too
            files.say(f"error: {error}")
        raise
    finally:
        torch.set_num_threads(before)
        report.close()


def _measure(run: Run, corpus: Corpus) -> tuple[Measure | None, Sequence[str]]:
    """Return what validation measures besides the loss, by name: the accuracy of a classifier; the
    BLEU and samples of a translator, or the samples of a language model, if the recipe asks for
    them."""
    n, task = run.recipe.train.translate_valid, corpus.manifest.task
    n_shown = run.recipe.train.sample_valid
    if n_shown and task not in ("pairs", "language-model"):
        rule = f"is for models that generate text, but this is for {task!r}"
        raise ConfigError("train.sample_valid", n_shown, rule, "leave it out")
    if n and task != "pairs":
        rule = f"is for data.task='pairs', but this is {task!r}"
        raise ConfigError("train.translate_valid", n, rule, "leave it out")
    if run.valid is None or not (n or n_shown or task == "classification"):
        return None, ()
    if n_shown and task == "language-model":
        return WatchedContinuations(corpus, n_shown), ()
    if n_shown and not n:
        return WatchedTranslations(corpus, n_shown, run.recipe.batches.layout, scored=False), ()
    if n:
        return WatchedTranslations(corpus, n, run.recipe.batches.layout), SCORES

    def measure(model: Model) -> dict[str, float]:
        assert isinstance(model, MaskedLM | Classifier)
        return {"accuracy": accuracy(model, corpus, "valid").value}

    return measure, ("accuracy",)


def _trackers(run: Run) -> list[Listener]:
    config = run.recipe.train
    if not config.trackers:
        return []
    return [Trackers(config.trackers, run.folder, recipe_facts(run.recipe), config.log_every)]


def _introduction(run: Run, folder: Path) -> str:
    total = sum(p.numel() for p in run.objective.parameters())
    ranks = run.ranks
    kind = run.recipe.train.parallel
    kind += f", tensor parallel {ranks.tensor}" if ranks.tensor > 1 else ""
    many = f", {ranks.world} ranks ({kind})" if ranks.world > 1 else ""
    return f"{run.recipe.name}: {total:,} parameters on {ranks.device}{many}; run: {folder}"


def _farewell(run: Run, ending: Ending) -> str:
    state, line = run.state, f"the model is in {run.folder / 'model'}."
    if state.best is not None:
        line += f" Best {run.recipe.train.metric}: {state.best:.4f} at step {state.best_step:,}."
    return line if ending.finished else f"{line} Run the same command to resume."


class _LogLines:
    """Logs the progress of a run without a listener."""

    def __init__(self, log_every: int) -> None:
        self.log_every = log_every

    def step(self, record: MetricsLine) -> None:
        if record["step"] % self.log_every == 0 or record.get("skipped"):
            _log.info(step_line(record))

    def validation(self, record: MetricsLine) -> None:
        _log.info(validation_line(record))

    def say(self, text: str) -> None:
        pass  # a report logs this line itself

    def close(self) -> None:
        pass
