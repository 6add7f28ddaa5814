"""Checks before hours of work that the model fits the data, and that the checkpoints fit on the
disk."""

import shutil
from dataclasses import replace
from pathlib import Path

from torch import nn

from clearhead.config import BatchConfig, ModelConfig, Recipe, TrainConfig
from clearhead.data.corpus import Corpus
from clearhead.errors import ClearheadError, ConfigError, setting
from clearhead.files import remove_unfinished
from clearhead.training.report import CHECKPOINTS, NEW_MODEL

FAMILIES = {
    "pairs": "encoder-decoder",
    "language-model": "decoder",
    "masked-lm": "encoder",
    "classification": "encoder",
}


def fit_model(recipe: Recipe, corpus: Corpus) -> ModelConfig:
    """Return the recipe's model with the vocabulary of the data. Raises if they do not fit."""
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
        rule = "gives each side a table, but a decoder has one for both"
        raise ConfigError("data.vocabularies", "separate", rule, "try 'shared', and prepare again")
    # A tokenizer without a padding token, such as GPT-2's, returns the end token for it. A language
    # model needs no padding if it is cut from one stream or kept inside its documents, and must see
    # every start and end.
    unpadded = task == "language-model" and first.pad_id in (first.bos_id, first.eos_id)
    classifies = task == "classification" and corpus.label_as == "class"
    model = replace(
        recipe.model,
        vocab_size=first.vocab_size,
        target_vocab_size=None if shared else others[0].vocab_size,
        pad_id=None if unpadded else first.pad_id,
        labels=tuple(corpus.labels) if classifies else (),
    )
    check_length(model, recipe.batches, corpus, ("train", "valid"))
    return model


def check_length(
    model: ModelConfig, batches: BatchConfig, corpus: Corpus, splits: tuple[str, ...], of: str = ""
) -> None:
    """Raises if the model does not hold a sample of these splits; `of` says whose splits they
    are."""
    task, longest = corpus.manifest.task, batches.length
    if task in ("pairs", "classification"):
        facts = [facts for split, facts in corpus.manifest.splits.items() if split in splits]
        whole = sum if batches.layout == "joined" else max
        longest = max(whole(split.longest.values()) for split in facts)
        longest += task == "classification"  # the mask, or the start
    if longest > model.max_length:
        rule = f"must hold the longest sample{of}, which has {longest} tokens"
        raise ConfigError("model.max_length", model.max_length, rule, f"try {longest}")


def check_space(folder: Path, objective: nn.Module, config: TrainConfig) -> None:
    """Check before hours of work that the checkpoints to keep will fit on the disk. First remove
    what a killed process left unfinished."""
    for unfinished in (folder / CHECKPOINTS).glob(".step-*"):
        shutil.rmtree(unfinished, ignore_errors=True)
    remove_unfinished(folder / NEW_MODEL)
    numbers = sum(p.numel() * p.element_size() for p in objective.parameters())
    moments = {"adamw": 2, "muon": 1, "adafactor": 1}[config.optimizer]
    copies = 1 + moments + (config.ema is not None)
    # These are the kept checkpoints, the best one, and the next one, which is complete before an
    # old one is removed.
    needed = numbers * (copies * (config.keep + 2) + 2)
    # A run that resumes already has some of them. An old one is removed only when the next is
    # complete.
    files = (file for name in (CHECKPOINTS, "model") for file in (folder / name).rglob("*"))
    there = sum(file.stat().st_size for file in files if file.is_file())
    needed = max(needed - there, numbers * copies)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ClearheadError(
            f"{folder} has {free / 1e6:,.0f} MB of free space, but the run needs about "
            f"{needed / 1e6:,.0f} MB more for {config.keep + 2} checkpoints and the "
            f"model; free some, lower train.keep, or name another folder: {setting('folder', ...)}"
        )
