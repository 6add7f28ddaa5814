"""Lists the runs in a folder, or shows one: its last step, and curves of its training and
validation losses, in the terminal or as a PNG."""

import argparse
from pathlib import Path

from rich.table import Table

from clearhead.api.paths import RUNS
from clearhead.cli.console import TextConsole
from clearhead.cli.terminal import as_field
from clearhead.errors import ClearheadError
from clearhead.files import refuse_link
from clearhead.inspection.curves import Curve, curve_text, curves_png
from clearhead.training.report import METRICS, SAMPLES, MetricsLine, read_metrics, sample_lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=RUNS,
        help=f"one run, or a folder of runs (default: {RUNS})",
    )
    parser.add_argument(
        "--picture",
        type=Path,
        metavar="FILE.png",
        help="draw the curves of the run, or of all runs, to this file",
    )


def run(namespace: argparse.Namespace) -> int:
    folder: Path = namespace.folder
    console = TextConsole()
    if (folder / METRICS).is_file():
        refuse_link(folder / METRICS)
        runs = {folder.name: read_metrics(folder / METRICS)}
        _show(console, runs[folder.name])
    else:
        folders = sorted(path.parent for path in folder.glob(f"*/{METRICS}"))
        if not folders and not folder.exists() and (RUNS / folder).is_dir():
            raise ClearheadError(f"there is no folder {folder}; did you mean {RUNS / folder}?")
        if not folders:
            what = f"{folder} holds no run" if folder.is_dir() else f"there is no folder {folder}"
            raise ClearheadError(f"{what}; make a run with: clearhead train RECIPE")
        for path in folders:
            refuse_link(path / METRICS)
        runs = {path.name: read_metrics(path / METRICS) for path in folders}
        _list(console, runs)
    if namespace.picture is not None:
        _draw(runs, namespace.picture)
        console.print(f"drawn: {namespace.picture}")
    return 0


def _list(console: TextConsole, runs: dict[str, list[MetricsLine]]) -> None:
    table = Table(box=None, pad_edge=False)
    for title in ("run", "steps", "tokens", "loss", "valid", "best at", "tokens/s"):
        table.add_column(title, justify="left" if title == "run" else "right")
    for name, records in runs.items():
        steps, valid = _steps(records), _validations(records)
        if not steps:
            table.add_row(as_field(name), "0")
            continue
        best = next((record for record in reversed(valid) if record["new_best"]), None)
        table.add_row(
            as_field(name),
            f"{steps[-1]['step']:,}",
            f"{steps[-1]['targets']:,}",
            f"{steps[-1]['loss']:.4f}",
            f"{best['loss']:.4f}" if best else "",
            f"{best['step']:,}" if best else "",
            f"{steps[-1]['tokens_per_second']:,.0f}",
        )
    console.print(table)


def _show(console: TextConsole, records: list[MetricsLine]) -> None:
    steps, valid = _steps(records), _validations(records)
    if not steps:
        console.print("no step has been taken yet")
        return
    last = steps[-1]
    skipped = sum("skipped" in record for record in records)
    console.print(
        f"step {last['step']:,}, epoch {last['epoch']}, {last['targets']:,} tokens, "
        f"{skipped} steps skipped"
    )
    console.print(f"\nloss\n{curve_text(_curve(steps, 'loss'))}")
    newest = valid[-1] if valid else {}
    for name in [name for name in newest if name not in HIDDEN]:
        console.print(f"\nvalid {as_field(name)}\n{curve_text(_curve(valid, name))}")
    if samples := sample_lines(newest):
        console.print(f"\nafter step {newest['step']:,}")
        console.print("\n".join(samples), soft_wrap=True)


HIDDEN = ("step", "valid", "new_best", "perplexity", SAMPLES)  # perplexity only repeats the loss


def _draw(runs: dict[str, list[MetricsLine]], path: Path) -> None:
    curves: dict[str, Curve] = {}
    for name, records in runs.items():
        curves[f"{name}: loss"] = _smoothed(_curve(_steps(records), "loss"))
        if valid := _validations(records):
            curves[f"{name}: valid loss"] = _curve(valid, "loss")
    curves_png(curves, path, title=", ".join(runs), y="nats for each token")


STEP = ("step", "epoch", "loss", "targets", "tokens_per_second")
VALIDATION = ("step", "loss", "new_best")


def _steps(records: list[MetricsLine]) -> list[MetricsLine]:
    steps = [record for record in records if "valid" not in record and "skipped" not in record]
    return [record for record in steps if all(_is_number(record.get(name)) for name in STEP)]


def _validations(records: list[MetricsLine]) -> list[MetricsLine]:
    validations = [record for record in records if "valid" in record]
    return [
        record for record in validations if all(_is_number(record.get(name)) for name in VALIDATION)
    ]


def _is_number(value: object) -> bool:
    """Tell whether a value is a number. It may also be a word, which stands for NaN, or anything if
    the file is damaged."""
    return isinstance(value, int | float) and abs(value) < 1e300


def _curve(records: list[MetricsLine], name: str) -> Curve:
    # After a run resumes, it may measure more than before.
    drawn = [record for record in records if _is_number(record.get(name))]
    return Curve([record["step"] for record in drawn], [record[name] for record in drawn])


def _smoothed(curve: Curve, points: int = 400) -> Curve:
    """Average the curve over groups of steps. A step's loss depends on its batch, so thousands of
    steps would make a broad band."""
    stretch = max(1, len(curve.x) // points)
    starts = range(0, len(curve.x) - stretch + 1, stretch)
    return Curve(
        [curve.x[start + stretch // 2] for start in starts],
        [sum(curve.y[start : start + stretch]) / stretch for start in starts],
    )
