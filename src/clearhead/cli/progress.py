"""Shows the progress of a command: a bar on a terminal, plain lines elsewhere, nothing with
--quiet."""

import argparse
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from clearhead.cli.console import TextConsole
from clearhead.cli.terminal import visible
from clearhead.config.train import TrainConfig
from clearhead.training.report import Listener, MetricsLine, step_line, validation_line

STAGES = logging.getLogger("clearhead.progress")
"""The messages with which functions of the library announce long work."""


def add_quiet(parser: argparse.ArgumentParser) -> None:
    """Add the option --quiet."""
    parser.add_argument(
        "--quiet", action="store_true", help="show no progress, only results and warnings"
    )


@contextmanager
def showing_stages(namespace: argparse.Namespace) -> Iterator[None]:
    """Inside the block, announce long work on standard error."""
    if namespace.quiet:
        yield
        return
    handler, before = _Stages(logging.INFO), STAGES.level
    STAGES.addHandler(handler)
    STAGES.setLevel(logging.INFO)
    try:
        yield
    finally:
        STAGES.removeHandler(handler)
        STAGES.setLevel(before)


class _Stages(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print(visible(f"{record.getMessage()} …"), file=sys.stderr, flush=True)


def training_listener(console: TextConsole, train: TrainConfig, *, quiet: bool) -> Listener:
    """Return the listener that shows the steps of a run."""
    if quiet:
        return _Warnings()
    return _Bar(console, train) if console.is_terminal else _Lines(train)


def next_checkpoint(step: int, train: TrainConfig) -> int:
    """Return the next step after this one that certainly has a checkpoint."""
    if not train.save_every:
        return train.steps
    return min(train.steps, (step // train.save_every + 1) * train.save_every)


class _Bar:
    """A progress bar for a terminal, with messages above it."""

    def __init__(self, console: TextConsole, train: TrainConfig) -> None:
        self.train = train
        self.progress = Bars(
            TextColumn("step {task.completed:,.0f}/{task.total:,.0f}"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[status]}", markup=False),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[after]}", markup=False),
            console=console,
        )
        self.task = self.progress.add_task("", total=train.steps, status="", after="", start=True)

    def step(self, record: MetricsLine) -> None:
        if record.get("skipped"):
            self.say(step_line(record))
            return
        self.progress.start()
        self.progress.update(
            self.task,
            completed=record["step"],
            status=f"loss {record['loss']:.3f}  {record['tokens_per_second']:,.0f} tokens/s",
            after=f"left  checkpoint at {next_checkpoint(record['step'], self.train):,}",
        )

    def validation(self, record: MetricsLine) -> None:
        self.say(validation_line(record))

    def say(self, text: str) -> None:
        self.progress.console.print(text)

    def close(self) -> None:
        self.progress.stop()


class _Lines:
    """Prints plain lines with the same facts if there is no terminal."""

    def __init__(self, train: TrainConfig) -> None:
        self.train = train
        self.first: tuple[int, float] | None = None
        """The number of the first step in this process, and the time at which it ended."""

    def step(self, record: MetricsLine) -> None:
        step = record["step"]
        self.first = self.first or (step, time.monotonic())
        if record.get("skipped"):
            self.say(step_line(record))
        elif step % self.train.log_every == 0:
            at = next_checkpoint(step, self.train)
            of = f"step {step:,} of {self.train.steps:,}"
            line = step_line(record).replace(f"step {step:,}", of, 1).rstrip()
            self.say(f"{line}{self._left(step)}  checkpoint at {at:,}")

    def _left(self, step: int) -> str:
        assert self.first is not None
        before, when = self.first
        if step == before:
            return ""
        seconds = (time.monotonic() - when) / (step - before) * (self.train.steps - step)
        return f"  {duration(seconds)} left"

    def validation(self, record: MetricsLine) -> None:
        self.say(validation_line(record))

    def say(self, text: str) -> None:
        print(text, flush=True)

    def close(self) -> None:
        pass


class _Warnings:
    """With --quiet, prints only warnings, to standard error."""

    def step(self, record: MetricsLine) -> None:
        if record.get("skipped"):
            self.say(f"warning: {step_line(record)}")

    def validation(self, record: MetricsLine) -> None:
        pass

    def say(self, text: str) -> None:
        if text.startswith("warning:"):
            print(visible(text), file=sys.stderr, flush=True)

    def close(self) -> None:
        pass


def duration(seconds: float) -> str:
    """Format a duration as clocks show it."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
