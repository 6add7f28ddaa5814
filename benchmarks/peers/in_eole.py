"""Eole, inside its own environment: `python -m benchmarks.peers.in_eole train|translate`."""

# pyright: reportMissingImports=false

import shutil
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import yaml
from eole import trainer
from eole.bin.run.predict import predict
from eole.bin.run.train import train as eole_train
from eole.config.run import PredictConfig, TrainConfig

from benchmarks.peers.marks import Marks, name_of, of_a_translator
from benchmarks.peers.sentencepieces import MODEL, TOKENS, build_vocabulary

BEAM, MAX_LENGTH = 5, 100
TRIAL_STEPS = 60


class Ended(Exception):  # noqa: N818
    """Ends training."""


def main() -> None:
    arguments = of_a_translator()
    torch.set_num_threads(1)
    marks = Marks(arguments.folder, arguments.minutes)
    if arguments.action == "train":
        settings = yaml.safe_load(arguments.config.read_text(encoding="utf-8"))
        build_vocabulary(arguments.data, settings["src_vocab_size"])
        train(with_paths(settings, arguments.data, arguments.folder), marks)
    else:
        translate(arguments.data, marks, arguments.minutes[0])


def with_paths(settings: dict[str, Any], data: Path, folder: Path) -> dict[str, Any]:
    names = {"corpus_1": "train", "valid": "val"}
    settings["data"] = {
        key: {"path_src": str(data / f"{name}.de"), "path_tgt": str(data / f"{name}.en")}
        for key, name in names.items()
    }
    settings["src_vocab"] = settings["tgt_vocab"] = str(data / TOKENS)
    pieces = {f"{side}_subword_model": str(data / MODEL) for side in ("src", "tgt")}
    settings["transforms_configs"]["sentencepiece"] = pieces
    settings["training"]["model_path"] = str(folder / "model")
    return {**settings, "overwrite": True}


def train(settings: dict[str, Any], marks: Marks) -> None:
    # A schedule that falls to its end needs the number of steps that the time allows; a few more,
    # so that the mark comes before the end.
    if settings["training"]["decay_method"] == "cosine":
        steps = 60 * marks.minutes[-1] / seconds_of_a_step(settings, marks.folder)
        settings["training"]["train_steps"] = round(1.01 * steps)
        marks.start()

    def watched(self: Any) -> None:
        minutes = marks.due()
        if minutes is not None:
            done = self.optim.training_step - 1
            self.model_saver.save(done)
            kept = marks.folder / f"model-{name_of(minutes)}"
            shutil.copytree(marks.folder / "model" / f"step_{done}", kept, dirs_exist_ok=True)
            marks.note(
                minutes, steps=done, parameters=sum(p.numel() for p in self.model.parameters())
            )
            if marks.is_last(minutes):
                raise Ended

    train_and_watch(settings, marks.folder, watched)


def seconds_of_a_step(settings: dict[str, Any], folder: Path) -> float:
    """The processor time of a step, in the middle of a few."""
    times: list[float] = []

    def watched(_: Any) -> None:
        times.append(time.process_time())
        if len(times) == TRIAL_STEPS:
            raise Ended

    train_and_watch(settings, folder, watched)
    return statistics.median(after - before for before, after in pairwise(times))


def train_and_watch(settings: dict[str, Any], folder: Path, watch: Callable[[Any], None]) -> None:
    """Trains, and calls `watch` with Eole's trainer before each step, until it raises Ended."""
    step = trainer.Trainer._train_step

    def watched(self: Any, batches: Any, *given: Any, **others: Any) -> None:
        watch(self)
        step(self, batches, *given, **others)

    shutil.rmtree(folder / "model", ignore_errors=True)
    trainer.Trainer._train_step = watched
    try:
        eole_train(TrainConfig(**settings))
    except Ended:
        return
    finally:
        trainer.Trainer._train_step = step


def translate(data: Path, marks: Marks, minutes: float) -> None:
    output = marks.folder / f"{name_of(minutes)}.txt"
    predict(
        PredictConfig(
            model_path=str(marks.folder / f"model-{name_of(minutes)}"),
            src=str(data / "test_2016_flickr.de"),
            output=str(output),
            beam_size=BEAM,
            max_length=MAX_LENGTH,
            batch_size=50,
            world_size=0,
            gpu_ranks=[],
        )
    )


if __name__ == "__main__":
    main()
