"""A run: recipe, data, model, optimizer and loader, either new or restored from a checkpoint. Its
folder contains:

recipe.toml     every key, as it was used        metrics.jsonl   a line for each step
log.txt         messages                         checkpoints/    what it resumes from
model/          the trained model
"""

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.optim import Optimizer

from clearhead.config import BatchConfig, ModelConfig, Recipe, TrainConfig
from clearhead.data.corpus import Corpus
from clearhead.data.loader import Loader
from clearhead.data.mixing import MixedLoader
from clearhead.errors import ClearheadError, InputError, setting
from clearhead.files import PARTIAL_NAME, locked, refuse_unusual
from clearhead.models.own_parts import NONE, OwnParts, own_parts_in, part_name
from clearhead.training.averaging import NamedWeights, copy_weights
from clearhead.training.beforehand import check_length, fit_model
from clearhead.training.changes import changed_versions, check_changes, recipe_facts
from clearhead.training.checkpoint import Checkpoint, Checkpoints, Tensors
from clearhead.training.checkpoint_index import CheckpointError
from clearhead.training.distributed import Ranks, build_objective, objective_of
from clearhead.training.optimizer import make_optimizers
from clearhead.training.report import CHECKPOINTS, RunFiles
from clearhead.training.shared_folder import check_shared
from clearhead.training.start import other_corpora, other_corpus, start_from
from clearhead.training.state import TrainState, read_state, versions

PARTIAL_FILES = re.compile(rf"(recipe\.toml|metrics\.jsonl){PARTIAL_NAME}")
Say = Callable[[str], None]
_log = logging.getLogger("clearhead")


@dataclass
class Run:
    """Everything on which the training loop works."""

    folder_or_none: Path | None
    """The folder of the run; None: a trial run, which is not resumed and writes nothing."""
    recipe: Recipe
    ranks: Ranks
    objective: nn.Module
    optimizers: list[Optimizer]
    loader: Loader
    valid: Loader | None
    also: dict[str, Loader]
    """Validation splits of other data, by the name of their folders."""
    checkpoints: Checkpoints
    state: TrainState
    ema: NamedWeights | None
    metrics_sha256: Callable[[], str | None] = lambda: None
    """Computes the hash of the lines of metrics.jsonl so far; None: this process writes no
    metrics."""
    claimed_sha256: str | None = None
    """The hash in the checkpoint from which this run resumes; older checkpoints have none."""

    @property
    def folder(self) -> Path:
        """The folder of the run; a trial run has none."""
        assert self.folder_or_none is not None, "a trial has no folder"
        return self.folder_or_none

    def follow(self, files: RunFiles, say: Say) -> None:
        """Continue the files of the run. Lines of steps that will be repeated are removed. The
        lines of the steps before a checkpoint are on the disk before the checkpoint names them."""
        files.forget_after(self.state.step)
        if self.claimed_sha256 not in (None, files.metrics_sha256()):
            say(
                f"warning: lines of {files.metrics.path} up to step {self.state.step:,} are "
                "missing or changed; training resumes exactly, curves may show gaps"
            )
        self.metrics_sha256 = files.metrics_sha256
        self.checkpoints.before_naming = files.sync

    def tensors(self) -> Tensors:
        """Return the tensors of a checkpoint, under names that do not depend on wrapping or
        sharding."""
        model, optimizer = get_state_dict(self.objective, self.optimizers)
        # The settings of the groups come from the recipe, not from the checkpoint.
        state: Tensors = {"model": model, "optimizer": optimizer["state"]}
        return state if self.ema is None else {**state, "ema": self.ema}

    def facts(self) -> dict[str, Any]:
        """Return what a checkpoint stores besides tensors: counters, recipe, versions, number of
        ranks."""
        return {
            "state": asdict(self.state),
            "loader": self.loader.state(),
            "recipe": recipe_facts(self.recipe),
            "versions": versions(),
            "world": self.ranks.world,
            "own_parts": objective_of(self.objective).model.own_parts.names,
            "metrics_sha256": self.metrics_sha256(),
        }

    def save(self) -> None:
        """Write a checkpoint of the current step."""
        self.checkpoints.save(self.state.step, self.tensors(), self.facts())

    def start_saving(self) -> None:
        """Start to write a checkpoint. With `async_save`, training continues meanwhile."""
        if not self.recipe.train.async_save:
            return self.save()
        self.checkpoints.start(self.state.step, self.tensors(), self.facts())

    def restore(self, checkpoint: Checkpoint, say: Say) -> None:
        """Resume from a checkpoint, if the recipe still describes the same run."""
        try:
            self._restore(checkpoint, say)
        except ClearheadError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise CheckpointError(
                f"the manifest of {checkpoint.folder} does not describe a run "
                f"({type(error).__name__}: {error}); start a new run in another folder: folder=…"
            ) from None

    def _restore(self, checkpoint: Checkpoint, say: Say) -> None:
        before, now = (facts.get("own_parts", {}) for facts in (checkpoint.facts, self.facts()))
        if before != now:
            raise ClearheadError(
                f"this run was started with the parts {before or 'that its recipe names'}, but now "
                f"has {now or 'none of your own'}; give the same parts, or start a new run in "
                f"another folder: {setting('folder', ...)}"
            )
        for change in check_changes(checkpoint.facts["recipe"], self.recipe):
            say(f"warning: from here on {change}")
        for change in changed_versions(checkpoint.facts["versions"], versions()):
            say(f"warning: steps may differ in their last digits: {change}")
        if checkpoint.facts["world"] != self.ranks.world:
            was = f"{checkpoint.facts['world']} ranks, now {self.ranks.world}"
            say(f"warning: there were {was}: dropout differs from here on")
        self.loader.load_state(checkpoint.facts["loader"])
        tensors = self.tensors()
        self.checkpoints.load(checkpoint, tensors)
        _, optimizer = get_state_dict(self.objective, self.optimizers)
        set_state_dict(
            self.objective,
            self.optimizers,
            model_state_dict=tensors["model"],
            optim_state_dict={**optimizer, "state": tensors["optimizer"]},
        )
        self.state = read_state(checkpoint.facts["state"])
        self.claimed_sha256 = checkpoint.facts.get("metrics_sha256")
        self.checkpoints.saved_step = self.state.step


def _check_output(part: nn.Module, _given: Any, output: Any) -> None:
    """Raises if a part of the user's own returns nothing."""
    if output is None:
        raise InputError(
            f"the forward of {part_name(type(part))} returns None; end it with `return` and its "
            "result"
        )


def open_run(
    recipe: Recipe,
    corpus: Corpus,
    folder: Path | None,
    ranks: Ranks,
    say: Say,
    *,
    own_parts: OwnParts = NONE,
) -> Run:
    """Open a new run, or a run that resumes from its newest complete checkpoint. Without a folder,
    it is a trial run: nothing is resumed and nothing is written."""
    if folder is not None:
        refuse_unusual(folder)
        check_shared(folder, ranks)
    model, config, batches = fit_model(recipe, corpus), recipe.train, recipe.batches
    packed = batches.layout == "documents" and corpus.manifest.task == "language-model"
    objective = build_objective(model, config, ranks, packed=packed, own_parts=own_parts)
    for part in own_parts_in(objective):
        part.register_forward_hook(_check_output)
    valid = partial(
        Loader,
        config=batches,
        split="valid",
        epochs=1,
        rank=ranks.data_rank,
        world=ranks.data_world,
    )
    others = other_corpora(config.also_validate, corpus) if config.validate_every else {}
    for other in others.values():
        of = f" of train.also_validate={str(other.folder)!r}"
        check_length(model, batches, other, ("valid",), of)
    run = Run(
        folder_or_none=folder,
        recipe=replace(recipe, model=model),
        ranks=ranks,
        objective=objective,
        optimizers=make_optimizers(objective, config),
        loader=_train_loader(corpus, model, batches, config, ranks),
        valid=valid(corpus) if config.validate_every else None,
        also={name: valid(other) for name, other in others.items()},
        checkpoints=Checkpoints(
            None if folder is None else folder / CHECKPOINTS, ranks, keep=config.keep
        ),
        state=TrainState(),
        ema=None if config.ema is None else copy_weights(objective_of(objective)),
    )
    checkpoint = run.checkpoints.newest(say)
    if checkpoint is None and config.start_from is not None:
        start_from(config.start_from, objective_of(objective).model, corpus)
        run.ema = None if run.ema is None else copy_weights(objective_of(objective))
        say(f"starting from the weights of {config.start_from}")
    if checkpoint is not None:
        run.restore(checkpoint, say)
        say(f"resuming after step {run.state.step:,} ({checkpoint.folder})")
    return run


def _train_loader(
    corpus: Corpus, model: ModelConfig, batches: BatchConfig, config: TrainConfig, ranks: Ranks
) -> Loader:
    if config.rehearse is None:
        return Loader(
            corpus,
            batches,
            epochs=config.epochs,
            workers=config.workers,
            rank=ranks.data_rank,
            world=ranks.data_world,
        )
    first = other_corpus("train.rehearse", config.rehearse, corpus, "train")
    of = f" of train.rehearse={config.rehearse!r}"
    check_length(model, batches, first, ("train",), of)
    return MixedLoader(
        corpus,
        batches,
        rehearsed=first,
        share=config.rehearse_share,
        epochs=config.epochs,
        workers=config.workers,
        rank=ranks.data_rank,
        world=ranks.data_world,
    )


def open_trial(recipe: Recipe, corpus: Corpus, ranks: Ranks, own_parts: OwnParts = NONE) -> Run:
    """Open a run whose steps are discarded. Nothing is resumed and nothing is written."""
    return open_run(recipe, corpus, None, ranks, _log.info, own_parts=own_parts)


@contextmanager
def locked_run_folder(folder: Path) -> Iterator[None]:
    """Lock a run's folder, into which one process writes at a time. The folder may come from
    somebody else."""
    refuse_unusual(folder)
    folder.mkdir(parents=True, exist_ok=True)
    remedy = f"wait for it, or name another folder: {setting('folder', ...)}"
    refusal = f"another process trains in {folder}; {remedy}"
    with locked(folder / ".lock", refusal):
        for path in folder.iterdir():  # left by a process that was killed
            if PARTIAL_FILES.fullmatch(path.name):
                path.unlink()
        yield
