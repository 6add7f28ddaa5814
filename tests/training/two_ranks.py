"""What two ranks do together, as a script for torchrun: `python -m tests.training.two_ranks PAIRS
TEXT OUT`. The first rank writes what was found; the tests hold it against one process."""

import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from clearhead.config import Recipe
from clearhead.data.corpus import Corpus, open_corpus
from clearhead.data.loader import Loader
from clearhead.training.averaging import borrowed, copy_weights
from clearhead.training.beforehand import fit_model
from clearhead.training.distributed import (
    Ranks,
    build_objective,
    joined_ranks,
    objective_of,
    whole_model,
)
from clearhead.training.loop import train
from clearhead.training.optimizer import make_optimizers
from clearhead.training.publishing import published_weights
from clearhead.training.report import Reporter
from clearhead.training.run import open_run
from clearhead.training.step import Update, take_step
from tests.training.small import PAIRS, TEXT, with_model, with_train

# Dropout differs from rank to rank, so what is compared goes without.
STILL = {"p_dropout": 0.0, "p_attention_dropout": 0.0}
N_BATCHES = 9  # with windows of 64 pairs: full batches, and the short last ones of a window


class Keeping(torch.optim.Optimizer):
    """Keeps the gradients that it is given, and changes nothing."""

    def __init__(self, module: nn.Module) -> None:
        self.names = [name.removeprefix("module.") for name, _ in module.named_parameters()]
        super().__init__(list(module.parameters()), {})
        self.kept: dict[str, torch.Tensor] = {}

    def step(self, closure=None) -> None:
        for name, parameter in zip(self.names, self.param_groups[0]["params"]):
            self.kept[name] = whole(parameter.grad).clone()


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def gradients(
    corpus: Corpus, ranks: Ranks, *, micro_batches: int, dtype: torch.dtype
) -> list[dict[str, torch.Tensor]]:
    """Of several global batches, this rank working on its share."""
    recipe = with_train(with_model(PAIRS, **STILL), label_smoothing=0.1)
    torch.set_default_dtype(dtype)
    objective = build_objective(fit_model(recipe, corpus), recipe.train, ranks, packed=False)
    torch.set_default_dtype(torch.float32)
    optimizer, found = Keeping(objective), []
    loader = Loader(corpus, recipe.batches, rank=ranks.rank, world=ranks.world)
    for batch in islice(loader, N_BATCHES):
        take_step(objective, [optimizer], batch, ranks=ranks, lr=1.0, micro_batches=micro_batches)
        found.append(optimizer.kept)
        optimizer.kept = {}
    return found


def weights_after(
    recipe: Recipe, corpus: Corpus, folder: Path, ranks: Ranks
) -> dict[str, torch.Tensor]:
    """Of a run to its end, opened anew or gone on with; whole, on every rank."""
    run = open_run(recipe, corpus, folder, ranks, lambda text: None)
    train(run, Reporter())
    return {name: whole(p.detach()) for name, p in objective_of(run.objective).named_parameters()}


def initial_weights(recipe: Recipe, corpus: Corpus, ranks: Ranks) -> dict[str, torch.Tensor]:
    """Before any step; whole, on every rank."""
    run = open_run(recipe, corpus, None, ranks, lambda text: None)
    return {name: whole(p.detach()) for name, p in objective_of(run.objective).named_parameters()}


TWENTY = with_train(with_model(PAIRS, **STILL), steps=20, save_every=10, clip_norm=0.5)
LANGUAGE = with_train(with_model(TEXT, **STILL), steps=8, save_every=4, clip_norm=0.5)


WATCHED = with_train(
    with_model(TEXT, **STILL), steps=6, validate_every=3, ema=0.5, publish="best", metric="mine"
)


# One micro-batch: with more, the weights of a small model stay gathered, and no rank waits.
MEASURED = with_train(
    with_model(TEXT, **STILL), steps=6, validate_every=2, metric="mine", micro_batches=1
)


class Watched(NamedTuple):
    ema: dict[str, torch.Tensor]
    modes: list[bool]
    """Of the model that was measured, each time; on the first rank."""
    best: float | None
    best_step: int | None
    published: dict[str, torch.Tensor]


def watched(recipe: Recipe, corpus: Corpus, folder: Path, ranks: Ranks) -> Watched:
    """A run with validation, a measure of its own, an average, and what it would publish."""
    modes: list[bool] = []

    def measure(model: nn.Module) -> dict[str, float]:
        modes.append(model.training)
        return {"mine": sum(p.double().abs().sum().item() for p in model.parameters())}

    run = open_run(recipe, corpus, folder, ranks, lambda text: None)
    train(run, Reporter(), measure=measure)
    published = published_weights(run, lambda text: None)
    assert run.ema is not None and published is not None
    with borrowed(objective_of(run.objective), published):
        model = whole_model(run.objective, ranks)
        weights = {} if model is None else copy_weights(model)
    ema = {name: whole(tensor) for name, tensor in run.ema.items()}
    return Watched(ema, modes, run.state.best, run.state.best_step, weights)


def measured(recipe: Recipe, corpus: Corpus, folder: Path, ranks: Ranks) -> float | None:
    """The best of a measure that runs the model, as an accuracy or BLEU does, on one rank."""

    def measure(model: nn.Module) -> dict[str, float]:
        return {"mine": model(torch.full((2, 4), 5)).double().abs().sum().item()}

    run = open_run(recipe, corpus, folder, ranks, lambda text: None)
    train(run, Reporter(), measure=measure)
    return run.state.best


def planted_nan(corpus: Corpus, ranks: Ranks) -> tuple[list[Update], bool]:
    """A NaN in one gradient of one rank: what both ranks saw, and whether all weights stayed."""
    recipe = with_model(TEXT, **STILL)
    objective = build_objective(fit_model(recipe, corpus), recipe.train, ranks, packed=False)
    optimizers = make_optimizers(objective, recipe.train)
    batch = next(iter(Loader(corpus, recipe.batches, rank=ranks.rank, world=ranks.world)))
    before = [whole(p.detach()).clone() for p in objective.parameters()]
    if ranks.rank == 1:
        norm = objective_of(objective).model.decoder.norm
        norm.register_full_backward_hook(lambda *_: (torch.full((1,), torch.nan) * _[1][0],))
    update = take_step(objective, optimizers, batch, ranks=ranks, lr=1.0)
    after = [whole(p.detach()) for p in objective.parameters()]
    same = all(torch.equal(one, other) for one, other in zip(before, after))
    return ranks.gather(update), all(ranks.gather(same))


def main() -> None:
    pairs, text = (open_corpus(Path(folder)) for folder in sys.argv[1:3])
    out = Path(sys.argv[3])
    found: dict[str, Any] = {}
    torch.set_num_threads(1)
    with joined_ranks(TWENTY.train) as ddp:
        fsdp = replace(ddp, sharded=True)
        for micro_batches in (1, 2, 3):
            for dtype in (torch.float32, torch.float64):
                for name, ranks in (("ddp", ddp), ("fsdp", fsdp)):
                    key = f"gradients {name} {micro_batches} {dtype}"
                    found[key] = gradients(pairs, ranks, micro_batches=micro_batches, dtype=dtype)
        for name, ranks in (("ddp", ddp), ("fsdp", fsdp)):
            recipe = with_train(TWENTY, parallel=name)
            found[f"twenty {name}"] = weights_after(recipe, pairs, out / f"twenty-{name}", ranks)
            recipe = with_train(WATCHED, parallel=name)
            seen = watched(recipe, text, out / f"watched-{name}", ranks)
            found[f"watched {name}"] = seen._asdict()  # this script's classes are nobody else's
            recipe = with_train(MEASURED, parallel=name)
            found[f"measured {name}"] = measured(recipe, text, out / f"measured-{name}", ranks)
            found[f"nan {name}"] = planted_nan(text, ranks)
            for optimizer in ("adafactor", "muon") if name == "ddp" else ("muon",):
                recipe = with_train(LANGUAGE, parallel=name, optimizer=optimizer, ema=0.5)
                folder = out / f"{optimizer}-{name}"
                found[f"{optimizer} {name}"] = weights_after(recipe, text, folder, ranks)
            recipe = with_train(LANGUAGE, parallel=name, start_from=str(out / "start"))
            found[f"first of {name}"] = initial_weights(recipe, text, ranks)
            folder = out / f"started-{name}"
            found[f"started {name}"] = weights_after(recipe, text, folder, ranks)
        # A run of one process goes on with two that share the model, saving as it trains.
        recipe = with_train(TWENTY, parallel="fsdp", async_save=True)
        found["one to two"] = weights_after(recipe, pairs, out / "one", fsdp)
        if ddp.first:
            torch.save(found, out / "found.pt")


if __name__ == "__main__":
    main()
