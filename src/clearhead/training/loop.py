"""The training loop: everything that happens during a run, in the order in which it happens."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from clearhead.data.batches import Batch
from clearhead.errors import ClearheadError, ConfigError
from clearhead.training.averaging import borrowed, move_towards
from clearhead.training.checkpoint import CheckpointError
from clearhead.training.distributed import objective_of
from clearhead.training.divergence import Divergence
from clearhead.training.flops import Meter
from clearhead.training.pace import Pace
from clearhead.training.report import MetricsLine, Reporter
from clearhead.training.run import Run
from clearhead.training.schedule import learning_rate, short_warmup
from clearhead.training.shared_folder import NotSharedError
from clearhead.training.signals import StopRequests
from clearhead.training.step import Update, seed_step, take_step
from clearhead.training.validation import Measure, loss_of_other, validate

SCORES_OF_TEXT = ("BLEU", "chrF++")
HIGHEST_IS_BEST = ("accuracy", *SCORES_OF_TEXT)


class NotFiniteError(ClearheadError):
    """Raised if the loss or the gradient is NaN or infinite and the recipe says to stop."""


class Ending(NamedTuple):
    """Why the loop ended."""

    reason: str
    kind: Literal["finished", "stopped", "not finite"] = "finished"

    @property
    def finished(self) -> bool:
        """Tell whether the run is finished; if not, the same command resumes it."""
        return self.kind == "finished"


def train(
    run: Run,
    report: Reporter,
    *,
    measure: Measure | None = None,
    measured: Sequence[str] | None = None,
    planned_seconds: float | None = None,
) -> Ending:
    """Take steps until the recipe's end or a request to stop. When the function returns, the last
    step has a checkpoint. `measure` adds numbers to each validation; `measured` are their names, if
    known. Steps that become much slower than `planned_seconds` are reported."""
    config, model, ranks = run.recipe.train, run.recipe.model, run.ranks
    assert model is not None
    names = ["loss", "perplexity", *map(loss_of_other, run.also), *(measured or ())]
    names_are_known = measure is None or measured is not None
    if config.metric not in names and names_are_known and config.validate_every:
        rule = f"is not one of the values that validation gives: {', '.join(names)}"
        remedy = "name one of them"
        if config.metric in SCORES_OF_TEXT and run.recipe.data.task == "pairs":
            remedy = "let each validation translate, such as train.translate_valid=50"
        raise ConfigError("train.metric", config.metric, rule, remedy)
    if config.metric in HIGHEST_IS_BEST and config.best_is == "lowest":
        rule = f"would keep the worst step by {config.metric}"
        raise ConfigError("train.best_is", config.best_is, rule, "try best_is='highest'")
    meter = Meter(model, ranks.device, config.precision, ranks.tensor)
    if ranks.restarted and run.state.skips > _skips_allowed(run):
        raise NotFiniteError(
            f"step {run.state.step:,} was not finite and ended the run, which torchrun has started "
            "again; run the same command to resume after it, or lower train.lr"
        )
    ending = _reached_end(run)  # a resumed run may have nothing left to do
    run.objective.train()
    pace = Pace(planned_seconds)
    divergence = Divergence(config, model)
    if ending is None and (short := short_warmup(config)):
        report.say(short)

    with StopRequests(config.max_minutes) as stop:
        started = time.perf_counter()
        for batch in run.loader if ending is None else ():
            step = run.state.step + 1
            ranks.beat(step)
            update = take_next_step(run, batch)
            run.state = run.state.after(update)
            if run.ema is not None and config.ema is not None and update.finite:
                move_towards(run.ema, objective_of(run.objective), config.ema, step)
            step_seconds = time.perf_counter() - started
            meter.count(batch, update.n_targets, step_seconds)
            report.step(_record(run, update, batch) | meter.rates())
            if slow := pace.after_step(step_seconds):
                report.say(slow)
            if diverged := divergence.after_step(step, update.loss):
                report.say(diverged)

            is_last = _reached_end(run) is not None  # it may be the best, which is published
            if every(config.validate_every, step) or (config.validate_every and is_last):
                with borrowed(objective_of(run.objective), run.ema):
                    _validate(run, report, measure)
            seconds = run.state.seconds + time.perf_counter() - started
            run.state = replace(run.state, seconds=seconds)

            ending = _reached_end(run) or _too_many_skips(run, update)
            if ending is None and ranks.any(stop.reason is not None):
                ending = Ending(stop.reason or "another rank was asked to stop", "stopped")
            if ending is not None:
                break
            if every(config.save_every, step) or run.state.best_step == step:
                _save_or_report(run.start_saving, report)
            if run.checkpoints.pending and not ranks.any(not run.checkpoints.written):
                _save_or_report(run.checkpoints.finish, report)
            started = time.perf_counter()

        assert ending is not None  # the loader has no end of its own before that of the epochs
        _save_or_report(run.checkpoints.finish, report)
        if run.checkpoints.saved_step != run.state.step:
            run.save()
    report.say(f"ended after step {run.state.step:,}: {ending.reason}")
    if ending.kind == "not finite":
        raise NotFiniteError(
            f"{ending.reason}; run the same command to resume after it, or lower train.lr"
        )
    return ending


def take_next_step(run: Run, batch: Batch) -> Update:
    """Take the next step of the run, with its dropout seed and learning rate."""
    config, step = run.recipe.train, run.state.step + 1
    assert run.recipe.model is not None
    seed_step(config.seed, step, run.ranks.data_rank)
    return take_step(
        run.objective,
        run.optimizers,
        batch,
        ranks=run.ranks,
        lr=learning_rate(step, config, run.recipe.model.d_model),
        micro_batches=config.micro_batches,
        clip_norm=config.clip_norm,
        loss_scale=run.state.loss_scale if config.precision == "fp16" else None,
    )


def every(interval: int, step: int) -> bool:
    """Tell whether periodic work is due at this step. An interval of 0 means never."""
    return interval > 0 and step % interval == 0


def _reached_end(run: Run) -> Ending | None:
    config, state = run.recipe.train, run.state
    if state.step == config.steps:
        return Ending("the last step of the recipe")
    if state.step > config.steps:
        return Ending(f"the recipe asks for no more than {config.steps:,}")
    if config.epochs is not None and run.loader.position.epoch >= config.epochs:
        return Ending(f"the last epoch of the recipe ({config.epochs:,})")
    if config.patience is not None and state.stale >= config.patience:
        return Ending(f"{state.stale} validations without a new best")
    return None


def _too_many_skips(run: Run, update: Update) -> Ending | None:
    state = run.state
    if update.finite or update.overflowed or state.skips <= _skips_allowed(run):
        return None
    seen = f"step {state.step:,}: loss {update.loss}, gradient norm {update.grad_norm}"
    return Ending(f"{seen}, {state.skips} such steps in a row; no weight was changed", "not finite")


def _skips_allowed(run: Run) -> int:
    config = run.recipe.train
    return config.max_skips if config.on_nan == "skip" else 0


def _record(run: Run, update: Update, batch: Batch) -> MetricsLine:
    """Return a step in numbers, which are the same in every run of this recipe."""
    record: MetricsLine = {
        "step": run.state.step,
        "epoch": run.loader.position.epoch,
        "loss": update.loss,
        "loss_hex": update.loss.hex(),
        "grad_norm": update.grad_norm,
        "lr": update.lr,
        "targets": run.state.targets,
    }
    if update.loss_scale is not None:
        record |= {"loss_scale": update.loss_scale, "overflows": run.state.overflows}
    if not update.finite:
        numbers = {name: str(record[name]) for name in ("loss", "grad_norm")}  # JSON has no NaN
        record |= {**numbers, "skipped": True}
    if not update.finite and not update.overflowed:
        shares = run.ranks.gather(batch.samples)[:: run.ranks.tensor]
        record["samples"] = [sample for share in shares for sample in share]
    return record


def _validate(run: Run, report: Reporter, measure: Measure | None) -> None:
    """Measure the model, and remember the best step."""
    config, state = run.recipe.train, run.state
    assert run.valid is not None
    values = validate(
        run.objective,
        run.valid,
        run.ranks,
        measure,
        run.also,
        micro_batches=config.micro_batches,
    )
    numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
    if config.metric not in numbers:
        rule = f"is not one of the values that validation gives: {', '.join(numbers)}"
        raise ConfigError("train.metric", config.metric, rule, "name one of them")
    run.state = state.validated(numbers[config.metric], config)
    # JSON has neither NaN nor infinity.
    shown = values | {
        name: str(number) for name, number in numbers.items() if not math.isfinite(number)
    }
    new = run.state.best_step == state.step
    report.validation({"step": state.step, "valid": True, "new_best": new, **shown})


def _save_or_report(save: Callable[[], None], report: Reporter) -> None:
    """Save a checkpoint. If this fails, for instance because the disk is full, the failure is
    reported, and the next checkpoint is written when it is due. Only a failure of the last
    checkpoint ends the run."""
    try:
        save()
    except NotSharedError:  # nor would the next one be complete
        raise
    except CheckpointError as error:
        report.say(f"warning: {error}")
