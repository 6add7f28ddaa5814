"""A run: recipe, data, model, optimizer and loader, new or restored from a checkpoint. Its folder:

recipe.toml     every key, as it was used        metrics.jsonl   a line for each step
log.txt         messages                         checkpoints/    what it resumes from
model/          the trained model
"""

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.optim import Optimizer

from clearhead.config import BatchConfig, ModelConfig, Recipe
from clearhead.config.checks import user_path
from clearhead.data.corpus import Corpus
from clearhead.data.loader import Loader
from clearhead.errors import ClearheadError, ConfigError
from clearhead.files import PARTIAL_NAME, locked, refuse_unusual
from clearhead.models.own_parts import NONE, OwnParts
from clearhead.training.averaging import NamedWeights, average_of, borrowed, copy_weights
from clearhead.training.changes import changed_versions, check_changes, recipe_facts
from clearhead.training.checkpoint import Checkpoint, Checkpoints, Tensors
from clearhead.training.checkpoint_index import CheckpointError
from clearhead.training.distributed import Ranks, build_objective, objective_of
from clearhead.training.optimizer import make_optimizers
from clearhead.training.report import CHECKPOINTS
from clearhead.training.shared_folder import check_shared
from clearhead.training.start import other_corpora, start_from
from clearhead.training.state import TrainState, read_state, versions
from clearhead.training.validation import validate

FAMILIES = {
    "pairs": "encoder-decoder",
    "language-model": "decoder",
    "masked-lm": "encoder",
    "classification": "encoder",
}
PARTIAL_FILES = re.compile(rf"(recipe\.toml|metrics\.jsonl){PARTIAL_NAME}")
Say = Callable[[str], None]


@dataclass
class Run:
    """Everything that the training loop works on."""

    place: Path | None
    """Its folder; None: a trial, which is not resumed and writes nothing."""
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
    """Of the lines of metrics.jsonl so far; None: this process writes no metrics."""
    claimed_sha256: str | None = None
    """The same, as the checkpoint has it from which this run resumes; older ones have none."""

    @property
    def folder(self) -> Path:
        """The folder of the run; a trial run has none."""
        assert self.place is not None, "a trial has no folder"
        return self.place

    def tensors(self) -> Tensors:
        """The tensors of a checkpoint, under names that do not depend on wrapping or sharding."""
        model, optimizer = get_state_dict(self.objective, self.optimizers)
        # The groups' settings come from the recipe, not from the past.
        found: Tensors = {"model": model, "optimizer": optimizer["state"]}
        return found if self.ema is None else {**found, "ema": self.ema}

    def facts(self) -> dict[str, Any]:
        """What a checkpoint stores beside tensors: counters, recipe, versions, number of ranks."""
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
        """Writes a checkpoint of the current step."""
        self.checkpoints.save(self.state.step, self.tensors(), self.facts())

    def start_saving(self) -> None:
        """Starts to write a checkpoint; with `async_save`, training continues meanwhile."""
        if not self.recipe.train.async_save:
            return self.save()
        self.checkpoints.start(self.state.step, self.tensors(), self.facts())

    def restore(self, checkpoint: Checkpoint, say: Say) -> None:
        """Resumes from a checkpoint, if the recipe still describes the same run."""
        try:
            self._restore(checkpoint, say)
        except ClearheadError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise CheckpointError(
                f"the manifest of {checkpoint.folder} does not describe a run "
                f"({type(error).__name__}: {error}); start anew in another folder: folder=…"
            ) from None

    def _restore(self, checkpoint: Checkpoint, say: Say) -> None:
        before, now = (facts.get("own_parts", {}) for facts in (checkpoint.facts, self.facts()))
        if before != now:
            raise ClearheadError(
                f"this run was started with the parts {before or 'that its recipe names'}, and now "
                f"has {now or 'none of your own'}; give the same parts, or start anew in another "
                "folder: folder=…"
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

    def published_weights(self, say: Say) -> NamedWeights | None:
        """The weights that the model folder gets; None: the present ones."""
        publish = self.recipe.train.publish
        if publish == "last" or not self.state.step:
            return self.ema
        objective, state = objective_of(self.objective), self.state
        present = self.checkpoints.steps()
        steps = present[-self.recipe.train.keep :]
        if publish == "best":
            best = self.checkpoints.best(state.best_step, present)
            steps = [] if best is None else [best]
            if best is not None and best != state.best_step:
                say(f"warning: step {state.best_step} has no checkpoint: the best before, {best}")
        found = [self.checkpoints.verified(step) for step in steps]
        for _, damage in found:
            if damage:
                say(f"warning: {damage}")
        whole = [checkpoint for checkpoint, _ in found if checkpoint is not None]
        if not whole:
            say(f"warning: there is no checkpoint for publish={publish!r}: the last weights")
            return self.ema
        part = "ema" if self.ema else "model"
        found_weights = average_of(self.checkpoints, whole, objective, part=part)
        is_worse = publish == "average" and self._is_worse(found_weights, say)
        return self.ema if is_worse else found_weights

    def _is_worse(self, average: NamedWeights, say: Say) -> bool:
        """Than the last weights, by validation: while a model still learns quickly, an average over
        many steps is a model of long ago."""
        if self.valid is None:
            return False
        losses: list[float] = []
        for weights in (average, self.ema):
            with borrowed(objective_of(self.objective), weights):
                found = validate(
                    self.objective,
                    self.valid,
                    self.ranks,
                    micro_batches=self.recipe.train.micro_batches,
                )
                losses.append(found["loss"])
        if losses[0] > losses[1]:
            say(
                f"the last weights are published: their validation loss is {losses[1]:.4f}, that "
                f"of the average of checkpoints {losses[0]:.4f}"
            )
        return losses[0] > losses[1]


def open_run(
    recipe: Recipe,
    corpus: Corpus,
    folder: Path | None,
    ranks: Ranks,
    say: Say,
    *,
    own_parts: OwnParts = NONE,
) -> Run:
    """A new run, or one that resumes from its newest whole checkpoint. Without a folder it is a
    trial: nothing is resumed and nothing written."""
    if folder is not None:
        refuse_unusual(folder)
        check_shared(folder, ranks)
    recipe = replace(recipe, model=fit_model(recipe, corpus))
    assert recipe.model is not None
    config, batches = recipe.train, recipe.batches
    packed = batches.layout == "documents" and corpus.manifest.task == "language-model"
    objective = build_objective(recipe.model, config, ranks, packed=packed, own_parts=own_parts)
    loader = partial(Loader, corpus, batches, rank=ranks.data_rank, world=ranks.data_world)
    run = Run(
        place=folder,
        recipe=recipe,
        ranks=ranks,
        objective=objective,
        optimizers=make_optimizers(objective, config),
        loader=loader(epochs=config.epochs, workers=config.workers),
        valid=loader(split="valid", epochs=1) if config.validate_every else None,
        also=_others(corpus, recipe, ranks),
        checkpoints=Checkpoints(
            None if folder is None else folder / CHECKPOINTS, ranks, keep=config.keep
        ),
        state=TrainState(),
        ema=None if config.ema is None else copy_weights(objective_of(objective)),
    )
    checkpoint = run.checkpoints.newest(say)
    if checkpoint is None and config.start_from is not None:
        start_from(user_path(config.start_from), objective_of(objective).model, corpus)
        run.ema = None if run.ema is None else copy_weights(objective_of(objective))
        say(f"starting from the weights of {config.start_from}")
    if checkpoint is not None:
        run.restore(checkpoint, say)
        say(f"resuming after step {run.state.step:,} ({checkpoint.folder})")
    return run


def check_space(run: Run) -> None:
    """Before hours of work: whether the checkpoints that will be kept fit on the disk. What a
    killed process left unfinished goes first."""
    if run.place is None or not run.ranks.first:
        return
    unfinished = (run.place / CHECKPOINTS).glob(".step-*")
    for leftover in (*unfinished, *run.place.glob("..model.new.unfinished-*")):
        shutil.rmtree(leftover, ignore_errors=True)
    numbers = sum(p.numel() * p.element_size() for p in run.objective.parameters())
    moments = {"adamw": 2, "muon": 1, "adafactor": 1}[run.recipe.train.optimizer]
    copies = 1 + moments + (run.ema is not None)
    # Those that are kept, the best, and the next one, which is whole before an old one goes.
    needed = numbers * (copies * (run.recipe.train.keep + 2) + 2)
    # A run that resumes has some of them; whatever goes, goes when the next one is whole.
    there = sum(_bytes_below(run.place / name) for name in (CHECKPOINTS, "model"))
    needed = max(needed - there, numbers * copies)
    free = shutil.disk_usage(run.place).free
    if free < needed:
        raise ClearheadError(
            f"{run.place} has {free / 1e6:,.0f} MB of free space, and the run needs about "
            f"{needed / 1e6:,.0f} MB more for {run.recipe.train.keep + 2} checkpoints and the "
            "model; free some, lower train.keep, or name another: folder=…"
        )


def _bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _others(corpus: Corpus, recipe: Recipe, ranks: Ranks) -> dict[str, Loader]:
    if not recipe.train.validate_every:
        return {}
    others = other_corpora(recipe.train.also_validate, corpus)
    assert recipe.model is not None
    for other in others.values():
        of = f" of train.also_validate={str(other.folder)!r}"
        _check_length(recipe.model, recipe.batches, other, ("valid",), of)
    return {
        name: Loader(
            other,
            recipe.batches,
            split="valid",
            epochs=1,
            rank=ranks.data_rank,
            world=ranks.data_world,
        )
        for name, other in others.items()
    }


def fit_model(recipe: Recipe, corpus: Corpus) -> ModelConfig:
    """The recipe's model with the vocabulary of the data. Raises if they do not fit."""
    if recipe.model is None:
        raise ClearheadError(
            f"the recipe {recipe.name!r} has no [model]; write one, for example: "
            '[model] family = "decoder", d_model = 128, n_layers = 4, n_heads = 4, d_ff = 512'
        )
    task, joined = corpus.manifest.task, recipe.batches.layout == "joined"
    family = "decoder" if joined else FAMILIES[task]
    if recipe.model.family != family:
        rule, remedy = f"does not fit data.task={task!r}", f"try family={family!r}"
        if joined:
            rule += " with batches.layout='joined'"
        elif task == "pairs" and recipe.model.family == "decoder":
            remedy += ", or batches.layout='joined'"
        raise ConfigError("model.family", recipe.model.family, rule, remedy)
    first, *others = corpus.tokenizers.values()
    shared = len({facts.file for facts in corpus.manifest.tokenizers.values()}) == 1
    if joined and not shared:
        rule = "gives each side a table, and a decoder has one for both"
        raise ConfigError("data.vocabularies", "separate", rule, "try 'shared', and prepare again")
    # A tokenizer without padding, such as GPT-2's, gives the end for it. A language model needs
    # none, cut from one stream or kept inside its documents, and is to see every start and end.
    unpadded = task == "language-model" and first.pad_id in (first.bos_id, first.eos_id)
    model = replace(
        recipe.model,
        vocab_size=first.vocab_size,
        target_vocab_size=None if shared else others[0].vocab_size,
        pad_id=None if unpadded else first.pad_id,
    )
    _check_length(model, recipe.batches, corpus, ("train", "valid"))
    return model


def _check_length(
    model: ModelConfig, batches: BatchConfig, corpus: Corpus, splits: tuple[str, ...], of: str = ""
) -> None:
    """Raises if the model does not hold a sample of these splits; `of`: where they are from."""
    task, longest = corpus.manifest.task, batches.length
    if task in ("pairs", "classification"):
        facts = [facts for split, facts in corpus.manifest.splits.items() if split in splits]
        whole = sum if batches.layout == "joined" else max
        longest = max(whole(each.longest.values()) for each in facts)
        longest += task == "classification"  # the mask
    if longest > model.max_length:
        rule = f"must hold the longest sample{of}, which has {longest} tokens"
        raise ConfigError("model.max_length", model.max_length, rule, f"try {longest}")


@contextmanager
def own(folder: Path) -> Iterator[None]:
    """One process writes in a run's folder, which may have been sent by somebody."""
    refuse_unusual(folder)
    folder.mkdir(parents=True, exist_ok=True)
    refusal = f"another process trains in {folder}; wait for it, or name another: folder=…"
    with locked(folder / ".lock", refusal):
        for path in folder.iterdir():  # of a process that was killed
            if PARTIAL_FILES.fullmatch(path.name):
                path.unlink()
        yield
