"""Runs studies, which compare variants of a recipe over seeds, at an equal budget, with
intervals."""

import hashlib
import json
import logging
import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from clearhead.api.own_parts import own_parts
from clearhead.api.paths import STUDIES
from clearhead.api.preparing import prepare
from clearhead.api.study_worker import RESULT
from clearhead.config import recipe_toml
from clearhead.config.checks import MOST, as_folder, as_path, user_path
from clearhead.data.corpus import open_corpus
from clearhead.environment import data_folder
from clearhead.errors import ConfigError, DataError, InputError, call, own_part, setting
from clearhead.files import locked, refuse_unusual, write_whole
from clearhead.intake.public import public_corpora
from clearhead.interop.folders import has_file, read_json
from clearhead.studies.comparing import StudyResult, compare
from clearhead.studies.pages import write_pages
from clearhead.studies.result_lines import (
    RESULTS,
    ResultLine,
    add_line,
    is_complete,
    is_result,
    lines_of,
    read_lines,
)
from clearhead.studies.showing import table
from clearhead.studies.statistics import POWER, detectable_in_spreads
from clearhead.studies.study_file import SHIPPED, Arm, StudyPlan, load_study
from clearhead.studies.workers import StudyJob, run_jobs
from clearhead.training.distributed import joined_ranks, objective_of
from clearhead.training.loss import count_targets
from clearhead.training.plan import FEW_STEPS, make_plan
from clearhead.training.run import Run, Say, open_trial

COSTS = "costs.json"
STEPS_OF_TIME = 30  # timed where they decide the budget: batches differ by a tenth in their time
PAIRINGS = {
    True: "the differences between paired runs",
    False: "the runs of an arm whose samples differ from the baseline's",
}
"""The noise that hides a difference, by whether the runs of an arm and of the baseline are
paired."""
_log = logging.getLogger("clearhead")


def study(what: str | Path, *, folder: str | Path | None = None) -> "Study":
    """Open a study, given by the name of a shipped study or by the path of a .toml file. Its runs
    and results are in `folder`, by default studies/NAME."""
    if not isinstance(what, str | Path) or not str(what):
        raise InputError(f"what={what!r:.60} is not a name; give one, or the path of a .toml file")
    plan = load_study(what)
    return Study(plan, as_folder("folder", folder, STUDIES / plan.name))


class Study:
    """A study with the results that it has so far: see `run`, `table` and `page`. Its folder may
    come from somebody else."""

    def __init__(self, plan: StudyPlan, folder: Path) -> None:
        self.plan, self.folder = plan, folder

    def __repr__(self) -> str:
        return f"<study {self.plan.name} in {self.folder}>"

    @property
    def result(self) -> StudyResult:
        """Compare every arm that has finished runs with the baseline."""
        refuse_unusual(self.folder)
        return compare(self.plan, read_lines(self.folder / RESULTS))

    def table(self, *, times: bool = True) -> str:
        """Return the result as text. Without `times`, the text has no times, so that running the
        study again gives the same text."""
        return table(self.result, times=times)

    def page(self, out: str | Path) -> list[Path]:
        """Write the result into a folder: NAME.md and NAME.zh-CN.md, a picture for each, and the
        result lines from which they were made."""
        return write_pages(self.result, as_path("out", out))

    def run(
        self,
        *,
        workers: int | None = None,
        only_plan: bool = False,
        parts: Sequence[str] = (),
        say: Say | None = None,
    ) -> StudyResult:
        """Do the missing runs: every arm with every seed, each in a process with one thread.
        `workers` runs go at the same time (by default one for each core). If the study is killed at
        any moment, the same call resumes it. The call first says how long the runs will take; with
        `only_plan`, it does nothing else.

        `parts` repeats the parts that the study's file names, as "ROLE=FILE.py:NAME". FILE.py is
        run, so a study from somebody else may only run files that you name here."""
        if workers is not None and (type(workers) is not int or workers < 1):
            raise InputError(
                f"{setting('workers', workers)} must be a whole number of at least 1; try 1"
            )
        say, n_workers = say or _log.info, workers or os.cpu_count() or 1
        check_parts(self.plan, parts)
        self._check_tests()
        refuse_unusual(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        refusal = f"{self.folder} is in use by another process; wait until it has ended"
        with locked(self.folder / ".lock", refusal):
            self._prepare(say)
            costs = self._costs(say)
            self._collect(self._jobs(costs))
            jobs = self._jobs(costs)
            seconds = sum(costs[arm.key]["seconds"] for arm, _ in self._missing(costs))
            say(_introduction(self.plan, len(jobs), seconds, n_workers))
            if not only_plan:
                self._run(jobs, n_workers, say)
        return self.result

    def _check_tests(self) -> None:
        """Check the test files before hours of training, not after."""
        for test in self.plan.tests:
            for name in (test.source, test.reference):
                if not (data_folder() / name).is_file():
                    names_by_folder = {
                        public.folder: key for key, public in public_corpora().items()
                    }
                    corpus = names_by_folder.get(Path(name).parts[0])
                    remedy = f"get it with: {call('get_corpus', corpus)}" if corpus else "check it"
                    rule = f"is not below {data_folder()}"
                    raise ConfigError(f"tests.{test.name}", name, rule, remedy)

    def _collect(self, jobs: list[StudyJob]) -> None:
        """Collect the results of runs that ended after this study was killed and before it could
        record them."""
        for job in jobs:
            if not has_file(Path(job.task["folder"]), RESULT):
                continue
            line = _read_result(job)
            if lines_of(self.plan, [line]) and is_complete(self.plan, line):
                add_line(self.folder / RESULTS, line)

    def _run(self, jobs: list[StudyJob], workers: int, say: Say) -> None:
        done = 0

        def finished(job: StudyJob) -> None:
            nonlocal done
            done += 1
            line = _read_result(job)
            add_line(self.folder / RESULTS, line)
            values = ", ".join(f"{name} {value:.4g}" for name, value in line["values"].items())
            say(f"{done} of {len(jobs)}: {job.name}: {line.get('failed') or values}")

        run_jobs(jobs, "clearhead.api.study_worker", workers, finished)

    def _missing(self, costs: dict[str, dict[str, Any]]) -> list[tuple[Arm, int]]:
        """Return the runs that are missing, ordered by seed, so that an unfinished study has runs
        of every arm."""
        lines = lines_of(self.plan, read_lines(self.folder / RESULTS))
        return [
            (arm, seed)
            for seed in self.plan.seeds
            for arm in self.plan.arms
            if not (line := lines.get((arm.key, seed)))
            or line["steps"] != costs[arm.key]["steps"]
            or not is_complete(self.plan, line)
        ]

    def _jobs(self, costs: dict[str, dict[str, Any]]) -> list[StudyJob]:
        jobs: list[StudyJob] = []
        for arm, seed in self._missing(costs):
            cost = costs[arm.key]
            recipe = arm.trial(seed, cost["steps"])
            fingerprint = arm.fingerprint(recipe)
            name = f"{arm.key}-{seed}"
            file = self.folder / "recipes" / f"{name}.toml"
            file.parent.mkdir(exist_ok=True)
            write_whole(file, recipe_toml(recipe))
            task = {
                "recipe": str(file),
                "folder": str(self.folder / "runs" / f"{name}-{fingerprint}"),
                "prepared": str(self._prepared_folder(arm)),
                "parts": dict(arm.parts),
                "measures": list(self.plan.measures),
                "tests": [asdict(test) for test in self.plan.tests],
                "beam": self.plan.beam,
                "line": {
                    "arm": arm.name,
                    "lr": arm.lr,
                    "seed": seed,
                    "steps": cost["steps"],
                    "fingerprint": fingerprint,
                    **self.plan.conditions,
                    "tests": {test.name: test.files for test in self.plan.tests},
                    "parameters": cost["parameters"],
                },
            }
            jobs.append(StudyJob(name, task, self.folder / "logs" / f"{name}.txt"))
        return jobs

    def _prepared_folder(self, arm: Arm) -> Path:
        """Return the folder of the prepared data of an arm. Arms with the same data settings share
        it."""
        settings = json.dumps(asdict(arm.recipe.data), sort_keys=True)
        return self.folder / "prepared" / hashlib.sha256(settings.encode()).hexdigest()[:12]

    def _prepare(self, say: Say) -> None:
        arms = {self._prepared_folder(arm): arm for arm in self.plan.arms}
        for prepared_folder, arm in arms.items():
            if not prepared_folder.exists():
                say(f"preparing {prepared_folder}")
            prepare(arm.recipe, folder=prepared_folder)

    def _costs(self, say: Say) -> dict[str, dict[str, Any]]:
        """Return the steps, seconds and parameters of a run, by the key of its arm. They are
        measured once and stored: a budget in processor time must give the same number of steps when
        the study resumes."""
        path = self.folder / COSTS
        costs = read_json(self.folder, COSTS) if path.exists() else {}
        budget = f"{self.plan.budget}={self.plan.amount}"
        for arm in self.plan.arms:
            made_of = f"{arm.fingerprint(arm.recipe)} {budget}"
            if not self._is_cost(costs.get(arm.key), made_of):
                costs[arm.key] = {"made_of": made_of, **self._measure_cost(arm)}
                say(
                    f"{arm.key}: {costs[arm.key]['parameters']:,} parameters, "
                    f"{costs[arm.key]['steps']:,} steps, {costs[arm.key]['seconds']:,.0f} s"
                )
                write_whole(path, json.dumps(costs, indent=1))
        return costs

    def _is_cost(self, cost: Any, made_of: str) -> bool:
        """Tell whether a value is a stored cost of an arm: the steps, seconds and parameters of a
        run."""
        return (
            isinstance(cost, dict)
            and cost.get("made_of") == made_of
            and all(type(cost.get(name)) is int for name in ("steps", "parameters"))
            and type(cost.get("seconds")) in (float, int)
            and all(0 <= cost[name] < MOST for name in ("seconds", "parameters"))
            and 0 < cost["steps"] < MOST
            and (self.plan.budget != "steps" or cost["steps"] == self.plan.amount)
        )

    def _measure_cost(self, arm: Arm) -> dict[str, Any]:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            recipe = arm.trial(self.plan.seeds[0], arm.recipe.train.steps)
            corpus = open_corpus(self._prepared_folder(arm))
            with joined_ranks(recipe.train) as ranks:
                run = open_trial(recipe, corpus, ranks, own_parts(**arm.parts))
                steps = (
                    _steps_for_tokens(run, self.plan.amount) if self.plan.budget == "tokens" else 0
                )
                n_steps = STEPS_OF_TIME if self.plan.budget == "core_minutes" else FEW_STEPS
                estimate = make_plan(run, n_steps, clock=time.process_time)
        finally:
            torch.set_num_threads(threads)
        if self.plan.budget == "steps":
            steps = int(self.plan.amount)
        elif self.plan.budget == "core_minutes":
            steps = max(1, int(60 * self.plan.amount / estimate.seconds_per_step))
        return {
            "steps": steps,
            "seconds": steps * estimate.seconds_per_step,
            "parameters": estimate.parameters,
        }


def check_parts(plan: StudyPlan, named: Sequence[str]) -> None:
    """Raises unless the user names exactly the parts that a study's file names. The parts of
    shipped studies are clearhead's own and need no naming."""
    planned_parts: dict[tuple[str, Path, str], str] = {}
    for arm in plan.arms:
        for role, part in arm.parts.items():
            file, _, symbol = part.rpartition(":")
            if Path(file).parent != SHIPPED.resolve():
                planned_parts[role, Path(file), symbol] = f"arms.{arm.name}.parts.{role}"
    named_parts: dict[tuple[str, Path, str], str] = {}
    for text in named:
        role, _, name = text.partition("=")
        file, _, symbol = name.rpartition(":")
        named_parts[role, user_path(file).resolve(), symbol] = text
    for part, text in named_parts.items():
        if part not in planned_parts:
            its_parts = [own_part(*_role_and_class(planned)) for planned in planned_parts]
            remedy = f"its parts are {', '.join(its_parts)}" if its_parts else "it has none"
            raise InputError(f"{plan.given} has no part {text!r}; {remedy}")
    missing = [part for part in planned_parts if part not in named_parts]
    if missing:
        options = " ".join(own_part(*_role_and_class(part)) for part in planned_parts)
        rule = "would be run, and may be somebody else's"
        remedy = f"read the file, and if you trust it, name it among your parts: {options}"
        value = "=".join(_role_and_class(missing[0]))
        raise ConfigError(planned_parts[missing[0]], value, rule, remedy)


def _role_and_class(part: tuple[str, Path, str]) -> tuple[str, str]:
    role, file, symbol = part
    here = Path.cwd()
    return role, f"{file.relative_to(here) if file.is_relative_to(here) else file}:{symbol}"


def _read_result(job: StudyJob) -> ResultLine:
    """Read the result that a worker has written into the folder of its run."""
    folder = Path(job.task["folder"])
    line = read_json(folder, RESULT)
    if not is_result(line):
        remedy = "remove it to measure the run again"
        raise DataError(f"{folder / RESULT} is not the result of a run; {remedy}")
    return line


def _steps_for_tokens(run: Run, tokens: float) -> int:
    """Return the first step after which a run has seen this number of target tokens."""
    model, n_seen = objective_of(run.objective).model, 0
    run.loader.epochs = None
    for step, batch in enumerate(run.loader, 1):
        n_seen += count_targets(batch, model)
        if n_seen >= tokens:
            return step
    rule = "cannot be reached, since the data have no target token"
    raise ConfigError("budget.tokens", tokens, rule, "give data with target tokens")


def _introduction(plan: StudyPlan, n_missing: int, seconds: float, workers: int) -> str:
    n_runs = len(plan.arms) * len(plan.seeds)
    minutes = seconds / 60 / max(1, min(workers, n_missing))
    finished = f"{n_runs - n_missing} of {n_runs} runs are finished; "
    take = f"{n_missing} runs will take about {minutes:,.0f} minutes, {workers} at a time"
    start = f"{plan.name}: {finished if n_missing < n_runs else ''}{take} (without measuring)"
    if others := [n for n in plan.names if not all(plan.is_comparable(n, c) for c in plan.columns)]:
        start += f". {', '.join(others)}: not compared by loss per token, since the tokens differ"
    pairings = {plan.is_paired(name) for name in plan.names if name != plan.baseline}
    shown = [
        f"a difference of {spreads:.2g} standard deviations (of {noise})"
        for paired, noise in PAIRINGS.items()
        if paired in pairings
        and (spreads := detectable_in_spreads(len(plan.seeds), paired=paired)) is not None
    ]
    if len(plan.seeds) < 2:
        return f"{start}. One seed gives no interval: name more to compare arms."
    if not shown:
        return f"{start}."
    seeds = f"{len(plan.seeds)} seeds show {' or '.join(shown)}"
    return f"{start}. {seeds} with a probability of {POWER:.0%}."
