"""Provides rehearsal without the text of the first training: the first model's own translations of
new sources take its place (sequence-level distillation, Kim and Rush 2016, by the model itself)."""

import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random

from clearhead.api.loading import load
from clearhead.api.paths import PREPARED
from clearhead.api.text_model import find_translations
from clearhead.config import DataConfig, Recipe, with_values
from clearhead.config.options import TranslateOptions
from clearhead.data.prepare import prepare
from clearhead.data.shards import Job
from clearhead.intake.cleaning import split_reader
from clearhead.intake.own_text import FEW, OwnText, data_settings
from clearhead.intake.sources import Cursor, located
from clearhead.training.start import REHEARSE_SHARE

CHUNK = 128
"""The number of texts that are translated together."""
MOST_TIME = 0.1
"""The share of the training time that translating may take."""
READ = 50_000
"""The number of texts from which some are drawn."""
HELD_OUT = 0.05
_stages = logging.getLogger("clearhead.progress")


def rehearse_own(
    first: Path, recipe: Recipe, text_folder: Path, *, texts: int, minutes: float
) -> tuple[Recipe, str]:
    """Return the recipe with translations by the first model to rehearse, up to the wanted number,
    and a message about them. If hardly any source can be translated, the recipe does not change."""
    _stages.info("translating new sources with %s, to be rehearsed", first)
    pairs = list(
        _translated(first, recipe.data, texts, time.monotonic() + 60 * MOST_TIME * minutes)
    )
    if len(pairs) < FEW:
        return recipe, ""
    settings = data_settings(OwnText.pairs(pairs), text_folder / "rehearsal", recipe.data.sides)
    data = replace(
        recipe.data,
        **settings,
        valid=(),
        test=(),
        held_out=HELD_OUT,
        held_out_test=0.0,
        clean=(),
        skip=("blank", "too-long"),
        glossary=None,
    )
    named = Path(settings["train"][0]).stem.rpartition("-")[2]
    folder = (PREPARED / f"{recipe.name}-rehearsal-{named}").absolute()
    prepare(Job(config=data, root=Path("/"), folder=folder))
    own = {
        "train.rehearse": str(folder),
        "train.rehearse_share": REHEARSE_SHARE,
        "train.also_validate": (str(folder),),
    }
    reason = (
        f"Rehearsal: the text that {first} was trained on is not here. Its own translations of "
        f"{len(pairs):,} of the new sources take its place (train.rehearse); a validation reports "
        "the loss on some of them as well."
    )
    return with_values(recipe, own), reason


def _translated(
    first: Path, data: DataConfig, texts: int, until: float
) -> Iterator[tuple[str, str]]:
    """Return new sources with their translations: as many as the time allows, but at least one
    chunk."""
    documents = split_reader(located(data), "train").documents(Cursor(), {})
    sources = sorted({document.texts[0] for document in islice(documents, READ)})
    drawn = Random(0).sample(sources, min(texts, len(sources)))
    model = load(first)
    greedy = TranslateOptions(beam=1, too_long="skip")
    for start in range(0, len(drawn), CHUNK):
        chunk = drawn[start : start + CHUNK]
        for source, outputs in zip(chunk, find_translations(model, chunk, greedy)):
            if outputs and outputs[0].stop == "end" and outputs[0].text.strip():
                yield source, outputs[0].text
        if time.monotonic() > until:
            return
