"""Turns a recipe's text into token files: trains the tokenizer, encodes, writes a manifest. If it
is stopped at any moment, the same command resumes; finished files are only checked."""

import argparse
import shlex
import time
from pathlib import Path

from rich.progress import BarColumn, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Table

from clearhead.api.preparing import prepare
from clearhead.cli.calling import add_clean_argument, settings
from clearhead.cli.console import TextConsole
from clearhead.cli.options import add_options
from clearhead.cli.progress import add_quiet
from clearhead.cli.recipes import add_recipe_arguments, split_recipe
from clearhead.cli.terminal import as_field
from clearhead.config.tasks import PrepareOptions
from clearhead.data.manifest import Manifest
from clearhead.data.shards import Progress
from clearhead.intake.cleaning import REPORT

CALLS = prepare
STAGES = {"hashing": "checking the input", "tokenizer": "training the tokenizer"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipe_arguments(parser)
    add_options(parser, PrepareOptions, "processes", "overwrite")
    add_clean_argument(parser, "remove documents with defects")
    add_quiet(parser)


def run(namespace: argparse.Namespace) -> int:
    recipe, changes = split_recipe(namespace)
    console = TextConsole()
    started = time.monotonic()
    options = settings(namespace, prepare)
    if namespace.quiet:
        corpus = prepare(recipe, **options, data=changes)
    elif console.is_terminal:
        with progress_bars(console) as bars:
            corpus = prepare(recipe, **options, data=changes, progress=ShowProgress(bars))
    else:
        corpus = prepare(recipe, **options, data=changes, progress=StageLines(console))
    show_manifest(console, corpus.manifest)
    if corpus.manifest.data.get("clean"):
        listed = corpus.folder / REPORT
        console.print(f"Every document that was removed is a line of {listed}.", soft_wrap=True)
    console.print(f"\n{corpus.folder} is ready ({time.monotonic() - started:.1f} s).")
    name, out = shlex.quote(namespace.recipe), namespace.folder
    # Not wrapped at the terminal's width, as users copy these lines.
    look, train = _out("--out", out), _out("--prepared", out)
    console.print(f"Look at it with: clearhead data {name}{look}", soft_wrap=True)
    console.print(f"Train with: clearhead train {name}{train}", soft_wrap=True)
    return 0


def progress_bars(console: TextConsole) -> Bars:
    """Shows a bar for each stage, with its speed."""
    return Bars(
        TextColumn("{task.description:<22}", markup=False),
        BarColumn(bar_width=20),
        TaskProgressColumn(),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        TextColumn("{task.fields[rate]}", markup=False),
        console=console,
    )


class ShowProgress:
    """Shows one bar for each stage; the stages are in the order in which they began."""

    def __init__(self, bars: Bars) -> None:
        self.bars = bars
        self.tasks: dict[str, TaskID] = {}
        self.began: dict[str, float] = {}

    def __call__(self, progress: Progress) -> None:
        stage = progress.stage
        if stage not in self.tasks:
            title = STAGES.get(stage, f"encoding {stage}")
            self.tasks[stage] = self.bars.add_task(title, total=progress.total, rate="")
            self.began[stage] = time.monotonic()
        elapsed = time.monotonic() - self.began[stage]
        rate = f"{progress.tokens / elapsed:,.0f} tokens/s" if progress.tokens else ""
        self.bars.update(self.tasks[stage], completed=progress.done, rate=rate)


class StageLines:
    """Prints a line for each stage, and for each tenth of a stage, if there is no terminal."""

    def __init__(self, console: TextConsole) -> None:
        self.console, self.tenths = console, dict[str, int]()

    def __call__(self, progress: Progress) -> None:
        tenth = 10 * progress.done // max(1, progress.total)
        if tenth > self.tenths.get(progress.stage, -1):
            self.tenths[progress.stage] = tenth
            title = STAGES.get(progress.stage, f"encoding {progress.stage}")
            self.console.print(f"preparing: {title}, {10 * tenth}%")


def show_manifest(console: TextConsole, manifest: Manifest) -> None:
    """Prints counts of documents and tokens for each split, and the tokenizers."""
    table = Table(box=None, pad_edge=False)
    table.add_column("split")
    for title in ("documents", "side", "tokens", "mean", "longest"):
        table.add_column(title, justify="left" if title == "side" else "right")
    table.add_column("skipped")
    for split, facts in manifest.splits.items():
        counts = facts.skipped.items()
        skipped = ", ".join(f"{count:,} {as_field(kind)}" for kind, count in counts)
        for number, (side, tokens) in enumerate(facts.tokens.items()):
            first = number == 0
            table.add_row(
                as_field(split) if first else "",
                f"{facts.documents:,}" if first else "",
                as_field(side),
                f"{tokens:,}",
                f"{tokens / max(1, facts.documents):,.1f}",
                f"{facts.longest[side]:,}",
                skipped if first else "",
            )
    console.print(table)
    for facts in {facts.file: facts for facts in manifest.tokenizers.values()}.values():
        console.print(f"{as_field(facts.file)}: {facts.vocab_size:,} tokens")


def _out(option: str, out: Path | None) -> str:
    return f" {option} {shlex.quote(str(out))}" if out else ""
