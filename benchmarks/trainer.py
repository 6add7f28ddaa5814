"""The whole training loop against its bare step, and two ranks against one. Called by
`python -m benchmarks.step --trainer`; under torchrun it is the measuring of the ranks."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.bare_step import SETTINGS, best_times, our_step, shares_of
from clearhead.config import BatchConfig, Recipe, TrainConfig, load_recipe
from clearhead.data.corpus import Corpus, open_corpus
from clearhead.data.prepare import prepare
from clearhead.data.shards import Job
from clearhead.environment import data_folder
from clearhead.training.distributed import Ranks, joined_ranks
from clearhead.training.loop import train
from clearhead.training.report import MetricsLine, Reporter, RunFiles
from clearhead.training.run import open_run
from clearhead.training.step import take_step

SETTING = SETTINGS[0]
P_DROPOUT = 0.1


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


class Turns:
    """Listens to the loop: after each of its steps the bare step has its turn, so that a
    disturbance of the machine meets both."""

    def __init__(self, bare: Callable[[], None]) -> None:
        self.bare = bare
        self.seconds: dict[str, list[float]] = {"loop": [], "bare": []}
        self.resumed = time.perf_counter()

    def step(self, record: MetricsLine) -> None:  # noqa: ARG002
        stopped = time.perf_counter()
        self.seconds["loop"].append(stopped - self.resumed)
        self.bare()
        self.resumed = time.perf_counter()
        self.seconds["bare"].append(self.resumed - stopped)

    def validation(self, record: MetricsLine) -> None: ...
    def say(self, text: str) -> None: ...
    def close(self) -> None: ...


def whole_loop(corpus: Corpus, folder: Path, rounds: int) -> dict[str, Any]:
    """Seconds of a step in the loop (loader, log, metrics) and of the bare step; and of a
    checkpoint, of which each step pays the share that the recipes' usual interval gives it."""
    turns = Turns(our_step(SETTING, P_DROPOUT))
    report = Reporter([RunFiles(folder, log_every=1), turns])
    run = open_run(recipe(steps=rounds), corpus, folder, Ranks(), report.say)
    train(run, report)
    best = {name: min(seconds[1:]) for name, seconds in turns.seconds.items()}
    saves = []
    for _ in range(3):
        started = time.perf_counter()
        run.save()
        saves.append(time.perf_counter() - started)
    report.close()
    interval = TrainConfig().save_every
    best["loop with checkpoints"] = best["loop"] + min(saves) / interval
    tokens = SETTING.size.batch * SETTING.size.length
    return {
        "setting": SETTING.name,
        "rounds": rounds,
        "steps_between_checkpoints": interval,
        "milliseconds": {name: round(1000 * t, 1) for name, t in best.items()},
        "tokens_per_second": {name: round(tokens / t) for name, t in best.items()},
        "loop_over_bare": round(best["bare"] / best["loop with checkpoints"], 3),
        "seconds_of_a_save": round(min(saves), 3),
    }


LOOP = """
import json, sys, tempfile
from pathlib import Path
from benchmarks import trainer
with tempfile.TemporaryDirectory() as folder:
    corpus = trainer.make_corpus(Path(folder))
    print(json.dumps(trainer.whole_loop(corpus, Path(folder) / "run", int(sys.argv[1]))))
"""


def before_and_after(earlier: Path, rounds: int) -> dict[str, Any]:
    """The whole loop of an earlier checkout and of this one, in turns; the best counts."""
    checkouts = {"before": earlier.absolute(), "after": Path(__file__).parent.parent}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in checkouts}
    for _ in range(3):
        for name, root in checkouts.items():
            environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}"}
            command = [sys.executable, "-P", "-c", LOOP, str(rounds)]
            run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
            found[name].append(json.loads(run.stdout.splitlines()[-1]))
            print(name, found[name][-1]["seconds_of_a_save"], flush=True)
    return {
        name: {
            "milliseconds_of_a_step": min(loop["milliseconds"]["loop"] for loop in loops),
            "seconds_of_a_save": min(loop["seconds_of_a_save"] for loop in loops),
            "loop_over_bare": max(loop["loop_over_bare"] for loop in loops),
        }
        for name, loops in found.items()
    }


class Measured(NamedTuple):
    seconds: float
    """Of the fastest step."""
    shares: dict[str, float]
    """Of the operators that take most of its time."""


def measure_step(corpus: Corpus, ranks: Ranks, rows: int, parallel: str, rounds: int) -> Measured:
    """Steps of this global batch, the ranks sharing it."""
    run = open_run(recipe(rows, parallel=parallel), corpus, None, ranks, lambda _: None)
    batches = iter(list(islice(run.loader, rounds + 5)))

    def step() -> None:
        take_step(run.objective, run.optimizers, next(batches), ranks=ranks, lr=1e-4, clip_norm=1.0)

    return Measured(best_times({"step": step}, rounds)["step"], shares_of(step))


def measure_ranks(corpus: Corpus, rounds: int) -> dict[str, Any]:
    """One thread each: a rank alone with the whole batch and with half, and two ranks together.
    What two take longer than one with half the batch is communication."""
    rows = SETTING.size.batch
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    found: dict[str, float] = {}
    shares: dict[str, dict[str, float]] = {}
    for n in (1, 2, 1, 2):  # in turns, and the best counts
        command = [*start, str(n), "-m", "benchmarks.trainer", str(corpus.folder), str(rounds)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        for name, measured in json.loads(out.stdout.splitlines()[-1]).items():
            seconds, shares[name] = measured
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
        "profile_of_the_first_rank": shares,
    }


def main() -> None:
    corpus, rounds = open_corpus(Path(sys.argv[1])), int(sys.argv[2])
    torch.set_num_threads(1)
    rows = SETTING.size.batch
    with joined_ranks(TrainConfig()) as ranks:
        if ranks.world == 1:
            found = {
                "one rank": measure_step(corpus, ranks, rows, "ddp", rounds),
                "one rank, half the batch": measure_step(corpus, ranks, rows // 2, "ddp", rounds),
            }
        else:
            found = {
                "ddp": measure_step(corpus, ranks, rows, "ddp", rounds),
                "fsdp": measure_step(corpus, replace(ranks, sharded=True), rows, "fsdp", rounds),
            }
        if ranks.first:
            print(json.dumps(found))


if __name__ == "__main__":
    main()
