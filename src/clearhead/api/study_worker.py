"""Carries out one run of a study in a process of its own: trains, measures, and writes the result.

`python -P -m clearhead.api.study_worker` reads its task as a line of JSON from standard input. When
standard input closes, the process that started it is gone, and the worker ends."""

import json
import math
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch

from clearhead.api.bleu_and_perplexity import pairs_to_translate
from clearhead.api.evaluating import evaluate
from clearhead.api.own_parts import own_parts
from clearhead.api.recipes import as_recipe
from clearhead.api.trained_run import TrainedRun
from clearhead.api.training import train
from clearhead.data.batches import move
from clearhead.data.corpus import open_corpus
from clearhead.environment import data_folder, processor_name
from clearhead.errors import ClearheadError, FolderError, InputError
from clearhead.evaluation.translation import LONGER, translation_scores
from clearhead.files import write_whole
from clearhead.interop.folders import read_json
from clearhead.models import Classifier, MaskedLM
from clearhead.processes import output_of
from clearhead.studies.gradients import NormsByStack, gradient_norms, put_weights, spread
from clearhead.studies.result_lines import ResultLine, is_figure
from clearhead.studies.statistics import N_BLOCKS
from clearhead.studies.study_file import GRADIENTS
from clearhead.studies.workers import end_with_parent
from clearhead.training.distributed import joined_ranks
from clearhead.training.loop import NotFiniteError
from clearhead.training.report import METRICS, MetricsLine, read_metrics
from clearhead.training.run import open_trial
from clearhead.training.signals import STOPPED
from clearhead.training.state import versions

RESULT = "result.json"
CLOCK = "processor.json"
Measured = dict[str, Any]
"""The `values`, `left_out` and `n_lines` of each measure."""


def carry_out(task: dict[str, Any]) -> ResultLine | None:
    """Train and measure. Returns None if the run was stopped before its last step."""
    folder = Path(task["folder"])
    clock = ProcessorClock(folder)
    line: ResultLine = task["line"] | _circumstances()
    try:
        run = train(
            task["recipe"],
            folder=folder,
            prepared=task["prepared"],
            listeners=[clock],
            **task["parts"],
        )
    except NotFiniteError as error:
        last = _last(folder, "targets")
        return line | {"values": {}, "failed": str(error), "tokens": last, "date": _now()}
    if run.ending is None or not run.ending.finished:
        return None
    texts = [name for name in task["measures"] if name not in GRADIENTS]
    measured = _measure(run, texts, task, None, "")
    for test in task["tests"]:
        files = [data_folder() / test[side] for side in ("source", "reference")]
        further = _measure(run, texts, task, files, f"@{test['name']}")
        measured = {kind: measured[kind] | further[kind] for kind in measured}
    if len(texts) < len(task["measures"]):
        measured["gradients"] = norms = _gradients(run, task)
        measured["values"] |= {name: spread(norms[name]) for name in GRADIENTS}
    for name, value in measured["values"].items():
        if not is_figure(name, value):
            outcome = {"values": {}, "failed": f"{name} is {value}", "date": _now()}
            return line | outcome | {"tokens": _last(folder, "targets")}
    loss = _last(folder, "loss", valid=True)
    return (
        line
        | measured
        | {
            "valid_loss": loss if loss is not None and math.isfinite(loss) else None,
            "tokens": _last(folder, "targets"),
            "core_seconds": round(clock.total, 2),
            "date": _now(),
        }
    )


def _circumstances() -> dict[str, Any]:
    """Collect the versions, the processor's name, and the commit of the code that this process
    loaded."""
    circumstances = versions()
    return {
        **circumstances,
        "clearhead": _commit() or circumstances["clearhead"],
        "processor": processor_name(),
    }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _commit() -> str:
    """Return the commit of this package, if it is run from its checkout, src/clearhead. No other
    repository around it is read: the package may be installed inside a project that somebody sent,
    and the settings of a repository can name programs that git runs."""
    checkout = Path(__file__).parents[3]
    if not (checkout / ".git").exists():
        return ""
    git = ("git", "-C", str(checkout))
    if not output_of(*git, "ls-files", "--error-unmatch", __file__):
        return ""
    return output_of(*git, "describe", "--always", "--dirty", "--abbrev=12")


def _gradients(run: TrainedRun, task: dict[str, Any]) -> dict[str, NormsByStack]:
    """Compute the gradients' norms by layer on the first batch of training, with the initial
    weights and with the last."""
    recipe, corpus = as_recipe(task["recipe"]), open_corpus(Path(task["prepared"]))
    with joined_ranks(recipe.train) as ranks:
        trial = open_trial(recipe, corpus, ranks, own_parts(**task["parts"]))
        batch = move(next(iter(trial.loader)), ranks.device)
        first = gradient_norms(trial.objective, batch)
        put_weights(trial.objective, run.model)
        return dict(zip(GRADIENTS, (first, gradient_norms(trial.objective, batch))))


def _last(folder: Path, name: str, *, valid: bool = False) -> Any:
    values = [
        record[name]
        for record in read_metrics(folder / METRICS)
        if ("valid" in record) == valid and type(record.get(name)) in (float, int)
    ]
    return values[-1] if values else None


class ProcessorClock:
    """Counts the seconds of processor time that training has taken, over all its processes. If the
    run was killed, steps that it has to repeat count once."""

    def __init__(self, folder: Path, every: int = 20) -> None:
        self.path, self.every = folder / CLOCK, every
        self.seconds: dict[int, float] = {}
        if self.path.is_file():
            stored = read_json(folder, CLOCK)
            try:
                self.seconds = {int(step): float(seconds) for step, seconds in stored.items()}
                if not all(map(math.isfinite, self.seconds.values())):
                    raise ValueError("not all are numbers")
            except (TypeError, ValueError, OverflowError):
                remedy = f"remove {folder} to start its run again"
                raise FolderError(f"{self.path} does not hold seconds per step; {remedy}") from None
        self.started: float | None = None
        self.before = self.total

    @property
    def total(self) -> float:
        """The number of seconds up to the last step that was recorded."""
        return max(self.seconds.values(), default=0.0)

    def step(self, record: MetricsLine) -> None:
        now, step = time.process_time(), record["step"]
        if self.started is None:  # the first step here is not counted: it reserves memory
            self.seconds = {at: seconds for at, seconds in self.seconds.items() if at < step}
            self.started, self.before = now, self.total
        self.seconds[step] = self.before + now - self.started
        if step % self.every == 0:
            self._write()

    def validation(self, record: MetricsLine) -> None:
        pass

    def say(self, text: str) -> None:
        pass

    def close(self) -> None:
        self._write()

    def _write(self) -> None:
        if self.seconds:
            last = max(self.seconds)
            noted = {s: t for s, t in self.seconds.items() if s % self.every == 0 or s == last}
            write_whole(self.path, json.dumps(noted))


def _measure(
    run: TrainedRun,
    measures: Sequence[str],
    task: dict[str, Any],
    files: list[Path] | None,
    suffix: str,
) -> Measured:
    measured: Measured = {"values": {}, "left_out": {}, "n_lines": {}}
    if not run.opened.translates:
        # An encoder is measured on prepared data. In a study, their folder is not named after a
        # run.
        where = (
            {"prepared": task["prepared"]} if isinstance(run.model, MaskedLM | Classifier) else {}
        )
        values = evaluate(run, **where).values
        for name in measures:
            if name not in values:
                raise InputError(
                    f"{name!r} in measures is not measured for this model; choose from "
                    f"{', '.join(values)}"
                )
            measured["values"][name + suffix] = values[name]
        return measured
    source, reference = files or (None, None)
    sources, references, _ = pairs_to_translate(run, None, source, reference)
    figures = _Figures(run, sources, references, task["beam"])
    blocks = [[i for i in range(len(sources)) if i % N_BLOCKS != g] for g in range(N_BLOCKS)]
    for name in measures:
        figure = figures.by_name(name)
        measured["values"][name + suffix] = figure(range(len(sources)))
        measured["left_out"][name + suffix] = [figure(lines) for lines in blocks]
        if name == "exact":
            measured["n_lines"][name + suffix] = len(sources)
    return measured


class _Figures:
    """Computes measures of some lines. Translations and scores are made once, when they are first
    needed."""

    def __init__(
        self, run: TrainedRun, sources: list[str], references: list[str], beam: int
    ) -> None:
        if len(sources) < N_BLOCKS:
            raise InputError(
                f"the test set has {len(sources)} lines; a study needs at least {N_BLOCKS}"
            )
        self.run, self.sources, self.references, self.beam = run, sources, references, beam
        self._lines: list[str] | None = None
        self._scores: list[tuple[float, int]] | None = None

    def by_name(self, name: str) -> Callable[[Sequence[int]], float]:
        """Return a measure, as a function of the numbers of the lines."""
        figures = {
            "exact": self._exact,
            "loss": self._loss,
            "BLEU": partial(self._score, "BLEU"),
            "chrF++": partial(self._score, "chrF++"),
        }
        return figures[name]

    @property
    def translations(self) -> list[str]:
        """Return one translation for each source."""
        if self._lines is None:
            encode = self.run.opened.codec.target.encode
            longest = max(len(encode(line)) for line in self.references)
            self._lines = list(
                self.run.translate(
                    self.sources, beam=self.beam, max_new=longest + LONGER, too_long="cut"
                )
            )
        return self._lines

    def _exact(self, lines: Sequence[int]) -> float:
        right = [self.translations[i] == self.references[i] for i in lines]
        return sum(right) / len(right)

    def _loss(self, lines: Sequence[int]) -> float:
        """Return the nats of each target token."""
        if self._scores is None:
            scored = self.run.token_scores(self.sources, self.references)
            self._scores = [
                (-scored_text.log_prob, len(scored_text.log_probs)) for scored_text in scored
            ]
        chosen = [self._scores[i] for i in lines]
        return sum(nats for nats, _ in chosen) / sum(n for _, n in chosen)

    def _score(self, name: str, lines: Sequence[int]) -> float:
        scores = translation_scores(
            [self.translations[i] for i in lines],
            [self.references[i] for i in lines],
            n_resamples=0,
        )
        return next(score.value for score in scores if score.name == name)


def main() -> int:
    """Carry out the task on standard input. Returns 0, 2 after a user error, or 75 if it was
    stopped."""
    task = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    try:
        result = carry_out(task)
    except ClearheadError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if result is None:
        return STOPPED
    write_whole(Path(task["folder"]) / RESULT, json.dumps(result, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
