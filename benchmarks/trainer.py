"""The whole training loop against its bare step, and two ranks against one. Called by
`python -m benchmarks.step --trainer`; under torchrun it is the measuring of the ranks."""

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from benchmarks.step import SETTINGS, best_times, our_step
from clearhead.config import BatchConfig, Recipe, TrainConfig, load_recipe
from clearhead.data.corpus import Corpus, open_corpus
from clearhead.data.prepare import prepare
from clearhead.data.shards import Job
from clearhead.environment import data_folder
from clearhead.training.distributed import Ranks, joined
from clearhead.training.loop import train
from clearhead.training.report import Report, RunFiles
from clearhead.training.run import open_run
from clearhead.training.step import take_step

SETTING = SETTINGS[0]
P_DROPOUT = 0.1
N_STEPS = 40  # of the loop at a time; it ends in a checkpoint


DATA = replace(load_recipe("wikitext-2").data, vocab_size=SETTING.size.vocab_size)


def make_corpus(folder: Path) -> Corpus:
    prepare(Job(config=DATA, root=data_folder(), folder=folder / "prepared"))
    return open_corpus(folder / "prepared")


def recipe(rows: int | None = None, **settings: Any) -> Recipe:
    size = SETTING.size
    return Recipe(
        name="trainer",
        data=DATA,
        batches=BatchConfig(length=size.length, batch_size=rows or size.batch),
        model=SETTING.our_config(P_DROPOUT),
        train=TrainConfig(lr=1e-4, save_every=0, log_every=1, **settings),
    )


def whole_loop(corpus: Corpus, folder: Path, rounds: int) -> dict[str, Any]:
    """Seconds of a step in the loop, with loader, log, metrics and a checkpoint, and alone."""
    bare = our_step(SETTING, P_DROPOUT)
    files = RunFiles(folder, log_every=1)
    report = Report([files])
    run = open_run(recipe(steps=1), corpus, folder, Ranks(), report.say)
    train(run, report)
    best = {"loop": float("inf"), "bare": float("inf")}
    for _ in range(rounds):
        longer = replace(run.recipe.train, steps=run.state.step + N_STEPS)
        run.recipe = replace(run.recipe, train=longer)
        started = time.perf_counter()
        train(run, report)
        best["loop"] = min(best["loop"], (time.perf_counter() - started) / N_STEPS)
        started = time.perf_counter()
        for _ in range(N_STEPS):
            bare()
        best["bare"] = min(best["bare"], (time.perf_counter() - started) / N_STEPS)
    saves = []
    for _ in range(3):
        started = time.perf_counter()
        run.save()
        saves.append(time.perf_counter() - started)
    report.close()
    tokens = SETTING.size.batch * SETTING.size.length
    return {
        "setting": SETTING.name,
        "steps_between_checkpoints": N_STEPS,
        "milliseconds": {name: round(1000 * t, 1) for name, t in best.items()},
        "tokens_per_second": {name: round(tokens / t) for name, t in best.items()},
        "loop_over_bare": round(best["bare"] / best["loop"], 3),
        "seconds_of_a_save": round(min(saves), 3),
    }


def step_seconds(corpus: Corpus, ranks: Ranks, rows: int, parallel: str, rounds: int) -> float:
    """Of the fastest step of this global batch, the ranks sharing it."""
    with tempfile.TemporaryDirectory() as folder:
        run = open_run(recipe(rows, parallel=parallel), corpus, Path(folder), ranks, lambda _: None)
    batches = iter(list(islice(run.loader, rounds + 1)))

    def step() -> None:
        take_step(run.objective, run.optimizers, next(batches), ranks=ranks, lr=1e-4, clip_norm=1.0)

    return best_times({"step": step}, rounds)["step"]


def measure_ranks(corpus: Corpus, rounds: int) -> dict[str, Any]:
    """One thread each: a rank alone with the whole batch and with half, and two ranks together.
    What two take longer than one with half the batch is communication."""
    rows = SETTING.size.batch
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    found: dict[str, float] = {}
    for n in (1, 2, 1, 2):  # in turns, and the best counts
        command = [*start, str(n), "-m", "benchmarks.trainer", str(corpus.folder), str(rounds)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        for name, seconds in json.loads(out.stdout.splitlines()[-1]).items():
            found[name] = min(found.get(name, float("inf")), seconds)
    return {
        "rows_of_a_global_batch": rows,
        "milliseconds": {name: round(1000 * t, 1) for name, t in found.items()},
        "speed_of_two_over_one": {
            name: round(found["one rank"] / found[name], 3) for name in ("ddp", "fsdp")
        },
        "share_of_communication": {
            name: round(1 - found["one rank, half the batch"] / found[name], 3)
            for name in ("ddp", "fsdp")
        },
    }


def main() -> None:
    corpus, rounds = open_corpus(Path(sys.argv[1])), int(sys.argv[2])
    torch.set_num_threads(1)
    rows = SETTING.size.batch
    with joined(TrainConfig()) as ranks:
        if ranks.world == 1:
            found = {
                "one rank": step_seconds(corpus, ranks, rows, "ddp", rounds),
                "one rank, half the batch": step_seconds(corpus, ranks, rows // 2, "ddp", rounds),
            }
        else:
            found = {
                "ddp": step_seconds(corpus, ranks, rows, "ddp", rounds),
                "fsdp": step_seconds(corpus, replace(ranks, sharded=True), rows, "fsdp", rounds),
            }
        if ranks.first:
            print(json.dumps(found))


if __name__ == "__main__":
    main()
