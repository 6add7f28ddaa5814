"""Catalogues that are filled by a model."""

from collections.abc import Sequence
from pathlib import Path

from clearhead.api.tokenized_model import TokenizedModel
from clearhead.config.options import TranslateOptions
from clearhead.decoding.between import translate_between
from clearhead.decoding.engine import Engine
from clearhead.decoding.results import Output
from clearhead.decoding.text import translate_texts
from clearhead.errors import InputError
from clearhead.localise.catalogues import Catalogue, read_pairs
from clearhead.localise.filling import Draft, Filled, fill, memory_of
from clearhead.localise.masking import MaskedText


def fill_catalogue(
    model: TokenizedModel,
    engine: Engine,
    path: Path,
    output: Path,
    memory: Sequence[Path],
    options: TranslateOptions,
    *,
    pieces: bool,
) -> Filled:
    """Fills the open entries of a PO or XLIFF file, and writes it to `output`."""
    catalogue, codec = Catalogue(path), model.opened.codec
    remembered = memory_of(
        pair
        for pairs in (
            *map(read_pairs, memory),
            (pair for entry in catalogue.entries for pair in entry.translated),
        )
        for pair in pairs
    )

    def between(strings: Sequence[str]) -> list[list[Output]]:
        answers = translate_texts(engine, codec, strings, options.config())
        return [answer.outputs for answer in answers]

    def translate(texts: Sequence[MaskedText]) -> list[Draft | None]:
        with_spans = [text for text in texts if text.spans]
        if with_spans and not pieces:
            raise InputError(
                f"{path} has placeholders or tags in {len(with_spans):,} of {len(texts):,} texts, "
                "and this model has not learnt to keep them; train one with data.placeholders, or "
                "have the text between them translated piece by piece: pieces=True"
            )
        answers = translate_between(texts, between)
        return [each and Draft(each.text, each.confidence) for each in answers]

    filled = fill(catalogue, remembered, translate)
    catalogue.write(output)
    return filled
