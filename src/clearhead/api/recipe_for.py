"""A recipe for somebody's own text, in files or in memory: what `clearhead new` does."""

import logging
import os
import shlex
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from clearhead.api.keywords import takes
from clearhead.api.locating import given_or_shipped
from clearhead.api.old_calls import old_own_text
from clearhead.api.paths import PREPARED
from clearhead.api.preparing import defect_kinds
from clearhead.api.rehearsing import rehearse_own
from clearhead.config import DataConfig, Recipe, explained_toml, with_values
from clearhead.config.checks import as_path
from clearhead.config.recipe import TEMPLATES, load_recipe
from clearhead.config.tasks import NewOptions
from clearhead.data.same_text import data_of_run
from clearhead.errors import ClearheadError, InputError
from clearhead.evaluation.baseline import can_measure_baseline, cross_validated
from clearhead.files import write_whole
from clearhead.intake.cleaning import Defects, find_defects, split_reader
from clearhead.intake.equality import shared_targets
from clearhead.intake.own import check_name
from clearhead.intake.own_text import OwnText, check_strings, data_settings, without_labels
from clearhead.intake.proposal import refuse_tables
from clearhead.intake.sources import Cursor, find_inputs
from clearhead.intake.survey import check_files
from clearhead.training.size_reasons import reasons_for
from clearhead.training.sizing import size_recipe
from clearhead.training.start import recipe_from

_stages = logging.getLogger("clearhead.progress")
TEXT = Path("text")
READ_FOR_BASELINE = 50_000  # texts, of which some are drawn
WIDTH = 80


@dataclass(frozen=True, kw_only=True)
class SizedRecipe(Recipe):
    """A recipe whose sizes were chosen for a text, a machine and a time."""

    reasons: tuple[str, ...] = ()
    defects: Defects
    """What is wrong with the text, by kind, counted before anything was removed."""


@takes(NewOptions)
def recipe_for(
    name: str | None = None,
    text: OwnText | None = None,
    *,
    start: str | Path | None = NewOptions.start,
    rehearse_texts: int = NewOptions.rehearse_texts,
    masked: bool = NewOptions.masked,
    minutes: float = NewOptions.minutes,
    skip: Sequence[str] | None = NewOptions.skip,
    clean: Sequence[str] | None = NewOptions.clean,
    out: str | Path | None = NewOptions.out,
    folder: str | Path | None = NewOptions.folder,
    threads: int | None = NewOptions.threads,
    **old: Any,
) -> SizedRecipe:
    """A recipe for your own text, with sizes that suit the text, this machine and the time.

    `text` describes your text: `OwnText.pairs(rows)` for a translator, `OwnText.texts(strings)` for
    a language model, `OwnText.labelled(rows)` for a classifier, and other constructors for columns,
    files and tables. Text in memory is written into `folder`, from which the recipe's run reads it.
    The recipe's `defects` say what is wrong with the text.
    """
    if old:
        text = old_own_text(text, old)
    if not isinstance(text, OwnText):
        wrong = "is missing" if text is None else f"is a {type(text).__name__}, not an OwnText"
        raise InputError(
            f"text= {wrong}: say what there is, such as OwnText.pairs([(source, target), …]), "
            "OwnText.texts([…]) or, of files, OwnText.files(path)"
        )
    for what, several in (("skip", skip), ("clean", clean)):
        if several is not None:
            check_strings(what, several)
    options = NewOptions(
        start=start,
        rehearse_texts=rehearse_texts,
        masked=masked,
        minutes=minutes,
        skip=skip,
        clean=clean,
        out=out,
        folder=folder,
        threads=threads,
    )
    if options.masked:
        text = without_labels(text)
    removed = () if clean is None else defect_kinds(clean)
    if name is not None and (not isinstance(name, str) or not name):
        raise InputError(f"name={name!r:.60} is not a name; give a string, such as 'my-pairs'")
    written = None if out is None else as_path("out", out)
    name = (name or text.template) if written is None else written.stem  # as `load_recipe` does
    first = None if start is None else given_or_shipped(as_path("start", start))
    if written is not None:
        _check_out(written)
    template = load_recipe(TEMPLATES / f"{text.template}.toml")
    if text.own is not None:
        template = with_values(template, text.own.values)
    if first is not None:  # before anything is written
        template = recipe_from(template, first, data_of_run(first, PREPARED))
    data = template.data
    if text.own is None:
        text_folder = as_path("folder", folder, TEXT / name)
        data = replace(data, **data_settings(text, text_folder, data.sides))
    if data.format in ("text", "parallel", "labelled"):  # text in memory is written as a table
        refuse_tables(data.train)
    data = replace(data, skip=tuple(dict.fromkeys([*data.skip, *(skip or ())])))
    check_files(data)
    _stages.info("looking for defects in the text")
    defects = find_defects(data)
    template = replace(template, name=name, data=data)
    _stages.info("counting the text, training a tokenizer on a sample of it")
    sized = size_recipe(template, float(options.minutes), threads=threads)
    reasons = [*([] if text.own is None else [text.own.summary]), *reasons_for(sized)]
    own_recipe = with_values(template, {"data.clean": removed, **sized.values})
    is_without_first = template.train.rehearse is None and data.task == "pairs"
    if first is not None and is_without_first and options.rehearse_texts:
        text_folder = as_path("folder", folder, TEXT / name)
        n, limit = options.rehearse_texts, float(options.minutes)
        own_recipe, reason = rehearse_own(first, own_recipe, text_folder, texts=n, minutes=limit)
        reasons += [reason] if reason else []
    if data.task == "classification":
        reasons += _about_the_baseline(own_recipe.data)
    if note := shared_targets(find_inputs(own_recipe.data, "train"), own_recipe.data):
        reasons.append(f"Held out: {note}.")
    if written is not None:
        head = f"{name}: made by clearhead new, for {options.minutes:g} minutes."
        _write_recipe(written, own_recipe, [head, *reasons])
        own_recipe = load_recipe(written)
    return SizedRecipe(**vars(own_recipe), reasons=tuple(reasons), defects=defects)


def _about_the_baseline(data: DataConfig) -> list[str]:
    """What a model must beat: a baseline that trains in seconds."""
    if not can_measure_baseline():
        return []
    _stages.info("measuring a baseline")
    whole = replace(data, held_out=0.0, held_out_test=0.0, clean=())
    documents = split_reader(whole, "train").documents(Cursor(), {})
    rows = [document.texts for document in islice(documents, READ_FOR_BASELINE)]
    Random(0).shuffle(rows)  # files may be sorted by label
    accuracy = cross_validated([row[0] for row in rows], [row[-1] for row in rows])
    if accuracy is None:
        return []
    return [
        f"Baseline: {accuracy}, by five-fold cross-validation. A model that is not better is not "
        "worth its time; clearhead.evaluate(…) compares them on the test part."
    ]


def _write_recipe(path: Path, recipe: Recipe, head: Sequence[str]) -> None:
    paragraphs = [textwrap.fill(paragraph, WIDTH) for paragraph in head]
    try:
        write_whole(path, explained_toml(recipe, head="\n".join(paragraphs)))
    except OSError as error:
        raise _unwritable(path, error) from None


def _check_out(out: Path) -> None:
    """What can be wrong with the name alone: nothing has been read or measured yet."""
    check_name(out)
    if out.suffix != ".toml":
        raise ClearheadError(f"out={str(out)!r} must end in .toml; try {out}.toml")
    try:
        parent_is_there, is_there = out.parent.is_dir(), out.exists()
    except OSError as error:  # too long a name, or no right to look
        raise _unwritable(out, error) from None
    if not parent_is_there:
        raise ClearheadError(
            f"out={str(out)!r} is in a folder that does not exist; make it first: "
            f"mkdir -p {shlex.quote(str(out.parent))}"
        )
    if not os.access(out.parent, os.W_OK):
        raise ClearheadError(
            f"{out} cannot be written: its folder is read-only; name another file: out=…"
        )
    if is_there:
        raise ClearheadError(f"{out} already exists; remove it, or name another file: out=…")
    if out.stem == "recipe":
        raise ClearheadError(f"out={str(out)!r} is named like a run's own recipe; try another name")


def _unwritable(out: Path, error: OSError) -> ClearheadError:
    return ClearheadError(f"{out} cannot be written ({error.strerror}); name another file: out=…")
