"""clearhead itself, by what `clearhead train` calls. At a mark the run is stopped as Ctrl-C stops
it: it writes a checkpoint and the model; the next process resumes it."""

import argparse
import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import torch

import clearhead as ch
from benchmarks.peers.marks import POINTS, Marks, name_of
from clearhead.config import load_recipe
from clearhead.training.report import MetricsLine


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=["train", "validate"])
    parser.add_argument("--recipe", required=True)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--prepared", type=Path, required=True)
    parser.add_argument("--minutes", type=float, nargs="*", default=[])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    changes = [tuple(each.split("=", 1)) for each in arguments.set]
    recipe = load_recipe(arguments.recipe, changes)
    watch = Watch(Marks(arguments.folder, arguments.minutes))
    run = ch.train(
        recipe,
        folder=arguments.folder / "run",
        prepared=arguments.prepared,
        listeners=[watch],
    )
    parameters = ch.count_parameters(run.model).total
    if arguments.action == "validate":
        points = [{**each, "parameters": parameters} for each in watch.validations]
        (arguments.folder / POINTS).write_text(json.dumps(points), encoding="utf-8")
    elif watch.minutes is not None:
        kept = arguments.folder / f"run-{name_of(watch.minutes)}"
        shutil.rmtree(kept, ignore_errors=True)
        without = shutil.ignore_patterns("checkpoints")
        shutil.copytree(arguments.folder / "run", kept, ignore=without)
        watch.marks.note(
            watch.minutes, steps=watch.step_number, tokens=watch.tokens, parameters=parameters
        )


class Watch:
    """Listens to a run: asks it to stop at a mark, and notes the time of validations."""

    def __init__(self, marks: Marks) -> None:
        self.marks = marks
        self.minutes: float | None = None
        self.step_number = self.tokens = 0
        self.validations: list[dict[str, Any]] = []

    def step(self, record: MetricsLine) -> None:
        self.step_number, self.tokens = record["step"], record["targets"]
        if self.minutes is None:
            self.minutes = self.marks.due() if self.marks.minutes else None
            if self.minutes is not None:
                os.kill(os.getpid(), signal.SIGTERM)

    def validation(self, record: MetricsLine) -> None:
        seconds = round(time.process_time(), 1)
        loss = round(record["loss"], 4)
        found = {"steps": record["step"], "core_seconds": seconds, "loss": loss}
        self.validations.append(found)

    def say(self, text: str) -> None:
        print(text, flush=True)

    def close(self) -> None: ...


if __name__ == "__main__":
    main()
