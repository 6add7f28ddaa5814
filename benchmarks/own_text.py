"""Six jobs as somebody may bring them, by `clearhead new` and the commands that follow: does more
time give a better model, and is the recipe as good as one tuned by hand?

    python -m benchmarks.own_text                         # every run that is missing, about 9 hours
    python -m benchmarks.own_text --jobs pairs-5k --minutes 2 5
    python -m benchmarks.own_text --optimizers            # AdamW and Muon, ten minutes each
    python -m benchmarks.own_text --report                # what the finished runs say

Each finished run is a line of results/own_text.jsonl, and the same command does those that are
missing; a run that was interrupted begins anew. Minutes are those of one processor core, for the
steps that are timed to size the recipe and for the training. What a run has really used stands in
its line, and the load of the machine: cores share memory, so where more than a run for each core
works, a step takes longer, and a recipe gets fewer of them.
"""

import argparse
import gzip
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import stdev
from typing import Any, NamedTuple

import torch

from clearhead.config import Recipe, load_recipe, recipe_toml, with_values
from clearhead.config.recipe import TEMPLATES
from clearhead.environment import data_folder, environment_with, keep_freed_memory
from clearhead.training import sizing
from clearhead.training.size_reasons import reasons_for
from clearhead.training.start import recipe_from
from tools.result import FOLDER, circumstances

WORK = Path("runs/own_text")
LINES = FOLDER / "own_text.jsonl"
OPTIMIZERS = FOLDER / "own_text_optimizers.jsonl"
MINUTES = (2.0, 5.0, 10.0)
LONG = 30.0
SEEDS = (1, 2, 3)
N_TEST = 500
# Tuned by hand: rows of the table of sizes, and a learning rate beside the table's.
GRID = {"small": (0, 1.0), "middle": (1, 1.0), "middle, half the rate": (1, 0.5), "large": (2, 1.0)}
MUON_PASSES = {"adamw": 0.0, "muon": float("inf")}
"""What `new` chooses, but with one optimizer for pairs, however often the text is seen."""


class Job(NamedTuple):
    name: str
    template: str
    corpus: str
    n: int | None
    """Pairs that are taken at random; None: all."""
    long: bool = False
    """Also with half an hour."""
    noise: bool = False
    """With three seeds."""


JOBS = (
    Job("pairs-1k", "my-pairs", "multi30k", 1_000),
    Job("pairs-5k", "my-pairs", "multi30k", 5_000, noise=True),
    Job("pairs-27k", "my-pairs", "tatoeba_cmn_eng", 27_000, long=True),
    Job("paragraphs-20k", "my-pairs", "python_docs_zh_cn", 20_000, long=True),
    Job("text", "my-text", "hongloumeng", None, noise=True),
    Job("labels", "my-labels", "mr_sentence_polarity", None, noise=True),
)


class Run(NamedTuple):
    job: Job
    minutes: float
    seed: int = 1
    setting: str = "new"

    @property
    def key(self) -> list[Any]:
        return [self.job.name, self.minutes, self.seed, self.setting]


def all_runs() -> Iterator[Run]:
    """The short ones first, and of those what `new` chooses."""
    for minutes in MINUTES:
        yield from (Run(job, minutes) for job in JOBS)
    yield from (Run(job, 5.0, seed) for job in JOBS if job.noise for seed in SEEDS[1:])
    yield from (Run(job, LONG) for job in JOBS if job.long)
    yield from (Run(job, 10.0, setting=setting) for job in JOBS for setting in GRID)


def runs_of_optimizers(minutes: list[float]) -> Iterator[Run]:
    """One after the other on one machine."""
    for amount in minutes:
        for job in (job for job in JOBS if job.template == "my-pairs"):
            yield from (Run(job, amount, setting=setting) for setting in MUON_PASSES)


def finished(path: Path = LINES) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def unpacked(name: str) -> list[str]:
    text = gzip.decompress((data_folder() / name).read_bytes()).decode("utf-8")
    return text.removesuffix("\n").split("\n")


def cut(job: Job) -> Path:
    """The files of a job, as its owner would have them, and a test set beside them."""
    folder = WORK / job.name
    if (folder / "done").is_file():
        return folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(1)

    def write(name: str, lines: list[str]) -> None:
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")

    match job.corpus:
        case "hongloumeng":
            text = "\n".join(unpacked("hongloumeng/input.txt.gz"))
            at = len(text) * 19 // 20
            write("text.txt", [text[:at]])
            write("test.txt", [text[at:]])
        case "mr_sentence_polarity":
            for label in ("positive", "negative"):
                lines = unpacked(f"{job.corpus}/rt-polarity.{label[:3]}.gz")
                draw.shuffle(lines)
                write(f"{label}.txt", lines[N_TEST // 2 :])
                write(f"{label}.test", lines[: N_TEST // 2])
        case _:
            train, test = pairs_of(job.corpus)
            for split, pairs, n in (("train", train, job.n), ("test", test, N_TEST)):
                assert n is not None
                taken = draw.sample(pairs, n)
                for number, side in enumerate(("source", "target")):
                    write(f"{split}.{side}", [pair[number] for pair in taken])
    (folder / "done").touch()
    return folder.absolute()


def pairs_of(corpus: str) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    if corpus == "multi30k":
        files = (("train.de", "train.en"), ("test_2016_flickr.de", "test_2016_flickr.en"))
        found = [zip(*(unpacked(f"{corpus}/{name}.gz") for name in pair)) for pair in files]
    else:
        files = ("train", "test")
        found = [
            (tuple(line.split("\t")[:2]) for line in unpacked(f"{corpus}/{name}.tsv.gz"))
            for name in files
        ]
    train, test = map(list, found)
    return train, test


def recipe_of(
    run: Run, folder: Path, start: Path | None = None, first_text: Path | None = None
) -> tuple[Recipe, list[str]]:
    """As `clearhead new` would write it (`start`: with --from), for minutes of the processor; or a
    point of the grid. `first_text` is the prepared data of the first training, to be rehearsed."""
    template = load_recipe(str(TEMPLATES / f"{run.job.template}.toml"))
    files = {
        "my-pairs": ("train.source", "train.target"),
        "my-text": ("text.txt",),
        "my-labels": ("positive.txt", "negative.txt"),
    }[run.job.template]
    data = replace(template.data, train=tuple(str(folder / name) for name in files))
    template = replace(template, data=data)
    if start is not None:
        template = recipe_from(template, start, first_text)
    table, muon_passes = sizing.SIZES, sizing.MUON_PASSES
    try:
        if run.setting in MUON_PASSES:
            sizing.MUON_PASSES = MUON_PASSES[run.setting]
        if run.setting in GRID:
            number, rate = GRID[run.setting]
            size = table[number]._replace(tokens=float("inf"), lr=table[number].lr * rate)
            sizing.SIZES = (size,)
        sized = sizing.size_recipe(template, run.minutes, time.process_time)
    finally:
        sizing.SIZES, sizing.MUON_PASSES = table, muon_passes
    seeds = {"train.seed": run.seed, "batches.seed": run.seed}
    return with_values(template, {**sized.values, **seeds}), reasons_for(sized)


def clearhead(*arguments: object) -> tuple[str, float]:
    """What a command prints, and its seconds of processor time, on one thread."""
    command = [sys.executable, "-m", "clearhead", *map(str, arguments)]
    one_thread = environment_with(OMP_NUM_THREADS="1")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=one_thread)
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, f"{' '.join(command)} failed"
    return said, used.ru_utime + used.ru_stime


def train(recipe: Recipe, reasons: list[str], here: Path) -> float:
    """Prepares and trains in a new folder; the core minutes that training took."""
    shutil.rmtree(here, ignore_errors=True)  # half a run would not count all of its minutes
    here.mkdir(parents=True)
    path = here / "recipe-of-run.toml"
    path.write_text(recipe_toml(recipe), encoding="utf-8")
    (here / "reasons.txt").write_text("\n".join(reasons) + "\n", encoding="utf-8")
    clearhead("prepare", path, "--out", here / "prepared", "--processes", 1)
    _, seconds = clearhead("train", path, "--prepared", here / "prepared", "--folder", here / "run")
    return seconds / 60


def take(run: Run) -> dict[str, Any]:
    folder = cut(run.job)
    here = WORK / "runs" / "-".join(map(str, run.key)).replace(" ", "_").replace(",", "")
    recipe, reasons = recipe_of(run, folder)
    minutes = train(recipe, reasons, here)
    load = os.getloadavg()[1]  # of the last 5 minutes
    return {
        "job": run.job.name,
        "minutes": run.minutes,
        "seed": run.seed,
        "setting": run.setting,
        "scores": score(run.job, folder, here / "run"),
        "core_minutes": round(minutes, 2),
        "load": round(load, 1),
        **chosen(recipe),
        **{key: circumstances()[key] for key in ("commit", "date", "machine")},
    }


def chosen(recipe: Recipe) -> dict[str, Any]:
    """What the sizing rules decided."""
    assert recipe.model is not None
    return {
        "steps": recipe.train.steps,
        "lr": recipe.train.lr,
        "d_model": recipe.model.d_model,
        "n_layers": recipe.model.n_layers,
        "p_dropout": recipe.model.p_dropout,
        "vocab_size": recipe.data.vocab_size,
        "batch_tokens": recipe.batches.batch_tokens,
        "batch_size": recipe.batches.batch_size,
    }


def score(job: Job, folder: Path, run: Path | str) -> dict[str, float]:
    """On text that no part of the run has read."""
    as_json = ("--format", "jsonl")
    match job.template:
        case "my-pairs":
            files = ("--source", folder / "test.source", "--reference", folder / "test.target")
            how = (*files, "--beam", 1, "--max-new", 128, "--resamples", 0, *as_json)
            said, _ = clearhead("evaluate", run, *how)
            found = [json.loads(line) for line in said.splitlines()]
            return {each["name"]: round(each["value"], 3) for each in found}
        case "my-text":
            text = ("--text", folder / "test.txt", "--document", "file", *as_json)
            said, _ = clearhead("evaluate", run, *text)
            # Nats a byte do not depend on the tokenizer.
            return {"nats_per_byte": round(json.loads(said)["bits_per_byte"] * 0.6931472, 4)}
        case _:
            right = n = 0
            for label in ("positive", "negative"):
                given = folder / f"{label}.test"
                said, _ = clearhead("classify", run, "--input", given)
                right += sum(line == label for line in said.splitlines())
                n += len(said.splitlines())
            return {"accuracy": round(100 * right / n, 2)}


MAIN_SCORE = {"my-pairs": "BLEU", "my-text": "nats_per_byte", "my-labels": "accuracy"}


def noise_of(lines: list[dict[str, Any]]) -> dict[str, float]:
    """The standard deviation over seeds, by score: of the job that was run with several."""
    found: dict[str, float] = {}
    for job in JOBS:
        name = MAIN_SCORE[job.template]
        values = [
            line["scores"][name]
            for line in lines
            if (line["job"], line["setting"], line["minutes"]) == (job.name, "new", 5.0)
        ]
        if len(values) > 1:
            found[name] = stdev(values)
    return found


def is_near(name: str, value: float, best: float) -> bool:
    """What is asked of the recipe beside the best of the grid."""
    match name:
        case "BLEU":
            return value >= 0.95 * best
        case "nats_per_byte":
            return value <= best + 0.05
        case _:
            return value >= best - 2


def report(lines: list[dict[str, Any]]) -> None:
    """Whether quality falls with more time, beyond the noise; and how far it is from the grid's."""
    noise = noise_of(lines)
    for name, deviation in noise.items():
        print(f"{name}: standard deviation over seeds {deviation:.3f}")
    for job in JOBS:
        name = MAIN_SCORE[job.template]
        sign = -1 if name == "nats_per_byte" else 1
        mine = [line for line in lines if line["job"] == job.name]
        by_minutes = {
            line["minutes"]: line["scores"][name]
            for line in mine
            if line["setting"] == "new" and line["seed"] == 1
        }
        ordered = sorted(by_minutes.items())
        shown = ", ".join(f"{minutes:g} min {value:g}" for minutes, value in ordered)
        print(f"{job.name:<16}{name}: {shown or 'no run yet'}")
        for (_, before), (minutes, after) in pairwise(ordered):
            if sign * (before - after) > 2 * noise.get(name, 0.0):
                print(
                    f"{'':<16}MISSED: falls with more time, {before:g} to {after:g} at {minutes:g}"
                )
        grid = {line["setting"]: line["scores"][name] for line in mine if line["setting"] != "new"}
        if grid and 10.0 in by_minutes:
            best = max(grid, key=lambda setting: sign * grid[setting])
            missed = "" if is_near(name, by_minutes[10.0], grid[best]) else "MISSED: "
            print(
                f"{'':<16}{missed}best of {len(grid)} by hand at 10 min: {grid[best]:g} ({best}); "
                f"new: {by_minutes[10.0]:g}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", nargs="+", choices=[job.name for job in JOBS])
    parser.add_argument("--minutes", nargs="+", type=float)
    parser.add_argument("--setting", nargs="+", choices=["new", *MUON_PASSES, *GRID])
    parser.add_argument("--optimizers", action="store_true", help="runs of MUON_PASSES alone")
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    if arguments.report:
        report(finished())
        return
    torch.set_num_threads(1)
    keep_freed_memory()  # as training does: steps are timed here to size the recipe
    path = OPTIMIZERS if arguments.optimizers else LINES
    done = [[line[key] for key in ("job", "minutes", "seed", "setting")] for line in finished(path)]
    minutes = arguments.minutes or [10.0]
    for run in runs_of_optimizers(minutes) if arguments.optimizers else all_runs():
        left_out = (
            run.key in done
            or (arguments.jobs and run.job.name not in arguments.jobs)
            or (arguments.minutes and run.minutes not in arguments.minutes)
            or (arguments.setting and run.setting not in arguments.setting)
        )
        if left_out:
            continue
        line = json.dumps(take(run), ensure_ascii=False)
        with path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        print(line, flush=True)


if __name__ == "__main__":
    main()
