"""Tiny runs that several tests make: an encoder-decoder and a decoder, dropout on, in three
micro-batches."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from clearhead.config import BatchConfig, DataConfig, ModelConfig, Recipe, TrainConfig
from clearhead.data.corpus import Corpus
from clearhead.training.distributed import Ranks
from clearhead.training.loop import Ending, train
from clearhead.training.report import TIMED, Reporter, RunFiles, read_metrics
from clearhead.training.run import Run, open_run

TRAIN = TrainConfig(
    steps=30, micro_batches=3, lr=3e-3, warmup_steps=5, log_every=1, save_every=0, keep=100
)
PAIRS = Recipe(
    name="pairs",
    data=DataConfig(
        task="pairs", format="parallel", train=("source.txt", "target.txt"),
        valid=("source.txt", "target.txt"), vocab_size=300,
    ),
    batches=BatchConfig(batch_tokens=200, window=64),
    model=ModelConfig(
        d_model=16, n_heads=2, n_layers=1, d_ff=24, max_length=300, p_dropout=0.1,
        p_attention_dropout=0.1,
    ),
    train=TRAIN,
)  # fmt: skip
TEXT = Recipe(
    name="text",
    data=DataConfig(train=("text.txt",), valid=("text.txt",), vocab_size=300),
    batches=BatchConfig(length=20, batch_size=7),
    model=ModelConfig(
        family="decoder", d_model=16, n_heads=2, n_layers=2, d_ff=24, max_length=20, p_dropout=0.1
    ),
    train=TRAIN,
)


def with_train(recipe: Recipe, **changes: Any) -> Recipe:
    return replace(recipe, train=replace(recipe.train, **changes))


def with_model(recipe: Recipe, **changes: Any) -> Recipe:
    assert recipe.model is not None
    return replace(recipe, model=replace(recipe.model, **changes))


class Trained(NamedTuple):
    run: Run
    ending: Ending
    lines: list[dict[str, Any]]
    """What metrics.jsonl holds, without what depends on the clock."""
    said: list[str]


def go(recipe: Recipe, corpus: Corpus, folder: Path, before: Callable[[Run], None] | None = None,
       **options: Any) -> Trained:  # fmt: skip
    """Open a run, train it to its end, close it: what the command does, in this process."""
    said: list[str] = []
    files = RunFiles(folder, log_every=1)
    report = Reporter([files])
    run = open_run(recipe, corpus, folder, Ranks(), said.append)
    files.forget_after(run.state.step)
    if before is not None:
        before(run)
    try:
        ending = train(run, report, **options)
    finally:
        report.close()
    return Trained(run, ending, timeless(folder), said)


def timeless(folder: Path) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in line.items() if name not in TIMED}
        for line in read_metrics(folder / "metrics.jsonl")
    ]


def digest(module: nn.Module) -> str:
    """Of every bit of the weights."""
    whole = hashlib.sha256()
    for name, parameter in sorted(module.named_parameters()):
        whole.update(name.removeprefix("module.").encode())
        whole.update(parameter.detach().numpy().tobytes())
    return whole.hexdigest()
