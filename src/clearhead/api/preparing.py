"""Turns text into token files."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from clearhead.api.keywords import takes
from clearhead.api.paths import PREPARED
from clearhead.api.recipes import RecipeGiven, as_recipe
from clearhead.config import Recipe, revise_recipe
from clearhead.config.checks import as_folder
from clearhead.config.data import DEFECTS
from clearhead.config.tasks import PrepareOptions
from clearhead.data.corpus import Corpus, open_corpus
from clearhead.data.manifest import MANIFEST
from clearhead.data.prepare import prepare as prepare_job
from clearhead.data.shards import Job, Progress
from clearhead.errors import DataError, InputError, setting
from clearhead.intake.sources import data_root


@takes(PrepareOptions)
def prepare(
    recipe: RecipeGiven,
    *,
    folder: str | Path | None = PrepareOptions.folder,
    processes: int | None = PrepareOptions.processes,
    overwrite: bool = PrepareOptions.overwrite,
    data: Mapping[str, Any] | None = None,
    clean: Sequence[str] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Corpus:
    """Turn a recipe's text into token files: train the tokenizer, encode, write a manifest.

    A finished folder is only checked; if preparing was interrupted, it resumes. `overwrite`
    prepares the text again.

    `data` replaces settings of the recipe, such as `{"vocab_size": 4000}`. The folder records these
    settings, so you need not repeat them for training. `clean` names kinds of defects (`[]`: all
    kinds): documents with such defects are removed, and the folder's removed.tsv lists each of
    them.
    """
    own = as_recipe(recipe)
    if not isinstance(data, Mapping | None):
        raise InputError(f"data={data!r:.60} is not a table; give a dictionary, such as {{…}}")
    changes = dict(data or {})
    if clean is not None:
        if "clean" in changes:
            raise InputError(
                f"{setting('clean')} and data['clean'] both name kinds of defects; give only one"
            )
        changes["clean"] = defect_kinds(clean)
    revised = revise_recipe(own, {"data": changes}) if changes else own
    options = PrepareOptions(folder=folder, processes=processes, overwrite=overwrite)
    refuse_run_or_model(prepared_folder(own.name, folder), "folder", own.name)
    job = Job(
        config=revised.data,
        root=data_root(revised.data),
        folder=prepared_folder(own.name, folder),
        processes=options.processes or os.cpu_count() or 1,
        instead_of={key: getattr(own.data, key) for key in changes},
        report=progress or (lambda _: None),
    )
    prepare_job(job, overwrite=options.overwrite)
    return open_corpus(job.folder)


def prepared_folder(name: str, folder: str | Path | None) -> Path:
    """Return the folder for prepared text: prepared/NAME, unless another folder is given."""
    return as_folder("folder", folder, PREPARED / name)


def refuse_run_or_model(folder: Path, name: str, recipe: str) -> None:
    """Raises if the folder holds a run or a model: token files and another tokenizer would mix with
    its files. `name` is what the caller calls the folder."""
    if is_prepared(folder):
        return
    has_recipe = (folder / "recipe.toml").is_file()
    has_run = any((folder / file).exists() for file in ("log.txt", "checkpoints", "model"))
    if has_recipe and has_run:
        what = "a run"
    elif (folder / "config.json").is_file() and any(folder.glob("*.safetensors")):
        what = "a model"
    else:
        return
    raise DataError(
        f"{folder} is {what}, not prepared data; give {setting(name, str(PREPARED / recipe))}"
    )


def defect_kinds(clean: Sequence[str]) -> tuple[str, ...]:
    """Return the kinds of defects that were named, or all kinds if the list is empty."""
    if isinstance(clean, str):
        raise InputError(
            f"{setting('clean', clean)} is one string; give a list, such as "
            f"{setting('clean', [clean])}"
        )
    if not isinstance(clean, Sequence) or not all(isinstance(kind, str) for kind in clean):
        raise InputError(f"clean={clean!r:.60} must be a list of strings; give one")
    return tuple(clean) or DEFECTS


def is_prepared(folder: Path) -> bool:
    """Tell whether preparing has finished in this folder."""
    return (folder / MANIFEST).is_file()


def open_data_of(recipe: Recipe, folder: Path) -> Corpus:
    """Open prepared data. Raises if they belong to another recipe."""
    corpus = open_corpus(folder)
    corpus.manifest.given(folder, recipe.data)
    return corpus
