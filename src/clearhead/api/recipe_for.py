"""Makes a recipe for your own text, in files or in memory, as `clearhead new` does."""

import logging
import os
import shlex
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from clearhead.api.keywords import takes
from clearhead.api.languages import warn_of_other_language
from clearhead.api.locating import given_or_shipped
from clearhead.api.old_calls import old_own_text
from clearhead.api.paths import PREPARED
from clearhead.api.preparing import defect_kinds
from clearhead.api.rehearsing import rehearse_own
from clearhead.config import DataConfig, Recipe, explained_toml, with_values
from clearhead.config.checks import as_folder, as_path
from clearhead.config.recipe import TEMPLATES, check_recipe_name, load_recipe
from clearhead.config.tasks import NewOptions
from clearhead.data.same_text import data_of_run
from clearhead.decoding.opening import run_name
from clearhead.errors import ClearheadError, InputError, Message, function, setting, type_of
from clearhead.evaluation.baseline import can_measure_baseline, cross_validated
from clearhead.files import write_whole
from clearhead.intake.cleaning import Defects, find_defects, split_reader
from clearhead.intake.equality import shared_targets
from clearhead.intake.own import check_name
from clearhead.intake.own_text import OwnText, check_strings, data_settings, without_labels
from clearhead.intake.proposal import refuse_tables
from clearhead.intake.sources import Cursor, find_inputs
from clearhead.intake.strange_text import strange_in
from clearhead.intake.survey import Survey, check_files
from clearhead.training.size_reasons import reasons_for
from clearhead.training.sizing import size_recipe
from clearhead.training.start import recipe_from

_log = logging.getLogger("clearhead")
_stages = logging.getLogger("clearhead.progress")
TEXT = Path("text")
READ_FOR_BASELINE = 50_000  # number of texts; larger corpora are sampled
READ_FOR_LANGUAGE = 500
MOST_BLANK = 0.1
"""The share of the rows of a table that may have an empty cell without a warning."""
WIDTH = 80


@dataclass(frozen=True, kw_only=True)
class SizedRecipe(Recipe):
    """A recipe whose sizes suit a text, a machine and a training time."""

    reasons: tuple[str, ...] = ()
    defects: Defects
    """The defects of the text by kind, counted before anything was removed."""


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
    """Make a recipe for your own text, with sizes that suit the text, this machine and the training
    time.

    `text` describes your text: `OwnText.pairs(rows)` for a translator, `OwnText.texts(strings)` for
    a language model, `OwnText.labelled(rows)` for a classifier, and other constructors for columns,
    files and tables. Text in memory is written into `folder`, from which the recipe's run reads it.
    The recipe's `defects` count what is wrong with the text.
    """
    text = _checked(old_own_text(text, old) if old else text)
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
    request = _request(name, without_labels(text) if options.masked else text, options)
    template = _template(request)
    data = _data(request, template)
    _stages.info("looking for defects in the text")
    defects = find_defects(data)
    _warn_of_other_languages(request, data)
    if strange := strange_in(data):
        _log.warning(strange)
    if data.task == "pairs":
        defects = replace(defects, shift=strange)
    template = replace(template, name=request.name, data=data)
    _stages.info("counting the text, training a tokenizer on a sample of it")
    sized = size_recipe(template, float(options.minutes), threads=threads)
    _warn_of_missing_sides(data, sized.text.survey)
    recipe = with_values(template, {"data.clean": request.removed, **sized.values})
    recipe, rehearsal = _with_rehearsal(request, recipe)
    summary = [] if request.text.own is None else [request.text.own.summary]
    reasons = [*summary, *reasons_for(sized), *rehearsal, *_about_the_data(recipe.data)]
    if request.out is not None:
        recipe = _written(request.out, recipe, options.minutes, reasons)
    return SizedRecipe(**vars(recipe), reasons=tuple(reasons), defects=defects)


class _Request(NamedTuple):
    """The arguments of `recipe_for`, checked."""

    name: str
    text: OwnText
    options: NewOptions
    removed: tuple[str, ...]
    """The kinds of defects to be removed."""
    out: Path | None
    """The file of the recipe."""
    first: Path | None
    """The model that training starts from."""

    @property
    def text_folder(self) -> Path:
        """The folder into which text in memory is written."""
        return as_folder("folder", self.options.folder, TEXT / self.name)


def _checked(text: Any) -> OwnText:
    if not isinstance(text, OwnText):
        wrong = "is missing" if text is None else f"is {type_of(text)}, not an OwnText"
        raise InputError(
            f"{setting('text')} {wrong}: say what there is, such as "
            "OwnText.pairs([(source, target), …]), OwnText.texts([…]) or, of files, "
            "OwnText.files(path)"
        )
    return text


def _request(name: str | None, text: OwnText, options: NewOptions) -> _Request:
    removed = () if options.clean is None else defect_kinds(options.clean)
    if name is not None:
        check_recipe_name(name)
    out = None if options.out is None else as_path("out", options.out)
    first = None if options.start is None else given_or_shipped(as_path("start", options.start))
    if out is not None:
        _check_out(out)
    name = (name or text.template) if out is None else out.stem  # `load_recipe` does the same
    return _Request(name, text, options, removed, out, first)


def _template(request: _Request) -> Recipe:
    """Return the recipe to start from. Nothing has been written yet."""
    template = load_recipe(TEMPLATES / f"{request.text.template}.toml")
    if request.text.own is not None:
        template = with_values(template, request.text.own.values)
    if request.first is not None:
        template = recipe_from(template, request.first, data_of_run(request.first, PREPARED))
    return template


def _data(request: _Request, template: Recipe) -> DataConfig:
    """Check the files of the text, and write text that is in memory."""
    data = template.data
    if request.text.own is None:
        data = replace(data, **data_settings(request.text, request.text_folder, data.sides))
    if data.format in ("text", "parallel", "labelled"):  # which text in memory becomes
        refuse_tables(data.train)
    skipped = [*data.skip, *(request.options.skip or ())]
    data = replace(data, skip=tuple(dict.fromkeys(skipped)))
    check_files(data)
    return data


def _warn_of_other_languages(request: _Request, data: DataConfig) -> None:
    """Warn if a side of the pairs is in another language than the name of the first model says, or
    that of the recipe."""
    if data.task != "pairs":
        return
    name = request.name if request.first is None else run_name(request.first)
    reader = split_reader(replace(data, held_out=0.0, held_out_test=0.0, clean=()), "train")
    reader.sieve.has_recipe = False  # it is being made
    documents = islice(reader.documents(Cursor(), {}), READ_FOR_LANGUAGE)
    rows = [document.texts for document in documents]
    for number, side in enumerate(data.sides):
        warn_of_other_language([row[number] for row in rows], name, side=side)


def _warn_of_missing_sides(data: DataConfig, found: Survey) -> None:
    """Warn if many rows of a table lack a text, or its label or translation."""
    n_blank = found.skipped.get("blank", 0)
    n_rows = found.documents + n_blank
    if len(data.columns) > 1 and n_blank > MOST_BLANK * n_rows:
        _log.warning(
            f"{n_blank:,} of {n_rows:,} rows have an empty cell in one of the columns "
            f"{', '.join(map(str, data.columns))}, and are left out; if this is not "
            "intended, fill these cells"
        )


def _with_rehearsal(request: _Request, recipe: Recipe) -> tuple[Recipe, list[str]]:
    """Add rehearsal, and say why: if the text of the first training is missing, translations by the
    first model replace it."""
    n_texts = request.options.rehearse_texts
    has_first_text = recipe.train.rehearse is not None or recipe.data.task != "pairs"
    if request.first is None or has_first_text or not n_texts:
        return recipe, []
    folder, minutes = request.text_folder, float(request.options.minutes)
    recipe, reason = rehearse_own(request.first, recipe, folder, texts=n_texts, minutes=minutes)
    return recipe, [reason] if reason else []


def _about_the_data(data: DataConfig) -> list[str]:
    baseline = _about_the_baseline(data) if data.task == "classification" else []
    note = shared_targets(find_inputs(data, "train"), data)
    return [*baseline, *([f"Held out: {note}."] if note else [])]


def _about_the_baseline(data: DataConfig) -> list[str]:
    """Measure the baseline that a model must beat. It trains in seconds."""
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
        Message(
            f"Baseline: {accuracy}, by five-fold cross-validation. A model that is not better is "
            f"not worth its time; {function('evaluate')} compares them on the test part."
        )
    ]


def _written(path: Path, recipe: Recipe, minutes: float, reasons: Sequence[str]) -> Recipe:
    """Write the recipe into its file, and return it as read from there."""
    head = f"{path.stem}: made by clearhead new, for {minutes:g} minutes."
    paragraphs = [textwrap.fill(paragraph, WIDTH) for paragraph in (head, *reasons)]
    try:
        write_whole(path, explained_toml(recipe, head="\n".join(paragraphs)))
    except OSError as error:
        raise _unwritable(path, error) from None
    return load_recipe(path)


def _check_out(out: Path) -> None:
    """Raises if the name alone shows that the file cannot be written, before anything is read or
    measured."""
    check_name(out)
    if out.suffix != ".toml":
        raise ClearheadError(f"{setting('out', str(out))} must end in .toml; try {out}.toml")
    try:
        parent_is_there, is_there = out.parent.is_dir(), out.exists()
    except OSError as error:  # the name is too long, or the folder may not be read
        raise _unwritable(out, error) from None
    if not parent_is_there:
        raise ClearheadError(
            f"{setting('out', str(out))} is in a folder that does not exist; make it first: "
            f"mkdir -p {shlex.quote(str(out.parent))}"
        )
    if not os.access(out.parent, os.W_OK):
        raise ClearheadError(
            f"{out} cannot be written: its folder is read-only; name another file: "
            f"{setting('out', ...)}"
        )
    if is_there:
        raise ClearheadError(
            f"{out} already exists; remove it, or name another file: {setting('out', ...)}"
        )
    if out.stem == "recipe":
        raise ClearheadError(
            f"{setting('out', str(out))} is named like a run's own recipe; try another name"
        )


def _unwritable(out: Path, error: OSError) -> ClearheadError:
    return ClearheadError(
        f"{out} cannot be written ({error.strerror}); name another file: {setting('out', ...)}"
    )
