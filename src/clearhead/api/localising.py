"""Catalogues that are filled by a model."""

from collections.abc import Sequence
from pathlib import Path

from clearhead.api.tokenized_model import TokenizedModel
from clearhead.config.checks import as_path
from clearhead.config.options import CatalogueOptions
from clearhead.decoding.between import translate_between
from clearhead.decoding.engine import Engine
from clearhead.decoding.rating import rated
from clearhead.decoding.results import Output
from clearhead.decoding.text import (
    encode_masked,
    translate_sources,
    translate_texts,
    warn_of_too_long,
)
from clearhead.errors import InputError
from clearhead.localise.catalogues import Catalogue, read_pairs
from clearhead.localise.filling import Draft, Filled, fill, memory_of
from clearhead.localise.masking import MaskedText


def fill_open_entries(
    model: TokenizedModel, engine: Engine, path: Path, output: Path, options: CatalogueOptions
) -> Filled:
    """Fills the open entries of a PO or XLIFF file, and writes it to `output`."""
    catalogue, codec, config = Catalogue(path), model.opened.codec, options.config()
    own_pairs = (pair for entry in catalogue.entries for pair in entry.translated)
    others = (pair for each in options.memory for pair in read_pairs(as_path("memory", each)))
    calibration = model.calibration
    if options.leave_below and calibration is None:
        raise InputError(
            f"leave_below={options.leave_below} needs a confidence that means something, and "
            f"{model.folder} is not calibrated; do that first: clearhead.calibrate(…)"
        )

    def translate_strings(strings: Sequence[str]) -> list[list[Output]]:
        answers = translate_texts(engine, codec, strings, config, calibration=calibration)
        warn_of_too_long([repr(string[:40]) for string in strings], answers, codec, engine.config)
        return [answer.outputs for answer in answers]

    def translate(texts: Sequence[MaskedText]) -> list[Draft | None]:
        if options.pieces:
            outputs = translate_between(texts, translate_strings)
        elif codec.keeps_spans:
            sources = encode_masked(codec, texts, engine.config.max_length, config.too_long)
            answers = translate_sources(engine, codec, sources, config, calibration)
            names = [repr(text.restore(text.pieces)[:40]) for text in texts]
            warn_of_too_long(names, answers, codec, engine.config)
            outputs = [answer.outputs[0] if answer.outputs else None for answer in answers]
        else:
            _refuse_spans(path, texts)
            answers = translate_strings([text.restore(text.pieces) for text in texts])
            outputs = [answer[0] if answer else None for answer in answers]
        return [output and draft(output) for output in outputs]

    def draft(output: Output) -> Draft:
        if calibration is None:
            return Draft(output.text, output.confidence)
        confidence = rated(output, calibration, config.beam).calibrated
        assert confidence is not None
        return Draft(output.text, confidence, is_calibrated=True)

    memory = memory_of([*others, *own_pairs])
    filled = fill(catalogue, memory, translate, leave_below=options.leave_below)
    catalogue.write(output)
    return filled


def _refuse_spans(path: Path, texts: Sequence[MaskedText]) -> None:
    n_with = sum(bool(text.spans) for text in texts)
    if n_with:
        raise InputError(
            f"{path} has placeholders or tags in {n_with:,} of {len(texts):,} texts, and this "
            "model has not learnt to keep them; train one with data.placeholders, or have the text "
            "between them translated piece by piece: pieces=True"
        )
