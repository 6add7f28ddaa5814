"""Fills catalogues with a model's translations."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from clearhead.api.tokenized_model import TokenizedModel
from clearhead.config.checks import as_path
from clearhead.config.options import CatalogueOptions
from clearhead.decoding.between import translate_between
from clearhead.decoding.engine import Engine
from clearhead.decoding.rating import rated
from clearhead.decoding.results import AnsweredText, Output
from clearhead.decoding.sources import encode_masked, warn_of_too_long
from clearhead.decoding.text import translate_sources, translate_texts
from clearhead.errors import DataError, InputError
from clearhead.intake.tables import in_language, read_units
from clearhead.intake.unpack import open_bytes
from clearhead.localise.catalogues import Catalogue, TranslatedPair, read_pairs
from clearhead.localise.filling import Draft, Filled, fill, memory_of
from clearhead.localise.glossary import TermUse, as_glossary
from clearhead.localise.masking import MaskedText


def fill_open_entries(
    model: TokenizedModel, engine: Engine, path: Path, output: Path, options: CatalogueOptions
) -> Filled:
    """Fills the open entries of a PO or XLIFF file, and writes it to `output`."""
    catalogue, codec, config = Catalogue(path), model.opened.codec, options.config()
    own_pairs = (pair for entry in catalogue.entries for pair in entry.translated)
    memories = [as_path("memory", memory) for memory in options.memory]
    others = (pair for memory in memories for pair in _remembered(memory, catalogue.language))
    calibration, n_again = model.calibration, 0
    glossary, uses = as_glossary(options.glossary), list[TermUse]()
    if options.leave_below and calibration is None:
        raise InputError(
            f"leave_below={options.leave_below} needs a calibrated model, and "
            f"{model.folder} is not calibrated; run clearhead.calibrate(…) first"
        )

    def translate_strings(strings: Sequence[str]) -> list[list[Output]]:
        answers = translate_texts(
            engine, codec, strings, config, calibration=calibration, glossary=glossary
        )
        warn_of_too_long([repr(string[:40]) for string in strings], answers, codec, engine.config)
        return [counted(answer).outputs for answer in answers]

    def counted(answer: AnsweredText) -> AnsweredText:
        nonlocal n_again
        n_again += answer.again
        return answer

    def translate(texts: Sequence[MaskedText]) -> list[Draft | None]:
        if options.pieces:
            outputs = translate_between(texts, translate_strings)
        elif codec.keeps_spans:
            longest = engine.config.max_length
            sources = encode_masked(codec, texts, longest, config.too_long, glossary=glossary)
            answers = translate_sources(engine, codec, sources, config, calibration)
            names = [repr(text.restore(text.pieces)[:40]) for text in texts]
            warn_of_too_long(names, answers, codec, engine.config)
            drafts = [counted(answer).outputs for answer in answers]
            outputs = [draft[0] if draft else None for draft in drafts]
        else:
            _refuse_spans(path, texts)
            answers = translate_strings([text.restore(text.pieces) for text in texts])
            outputs = [answer[0] if answer else None for answer in answers]
        return [output and draft(output) for output in outputs]

    def draft(output: Output) -> Draft:
        uses.extend(output.terms)
        if calibration is None:
            return Draft(output.text, output.mean_probability)
        confidence = rated(output, calibration, config.beam).confidence
        assert confidence is not None
        return Draft(output.text, confidence, is_calibrated=True)

    memory = memory_of([*others, *own_pairs])
    filled = fill(catalogue, memory, translate, leave_below=options.leave_below)
    filled.again = n_again
    filled.terms, filled.terms_used = len(uses), sum(use.is_used for use in uses)
    catalogue.write(output)
    return filled


def _remembered(path: Path, language: str) -> Iterator[TranslatedPair]:
    """What persons have translated into the language of a catalogue: in another one, or in a TMX
    file, where every other language counts as a source."""
    if not path.name.lower().endswith((".tmx", ".tmx.gz", ".tmx.zst")):
        yield from read_pairs(path)
        return
    code, languages, is_empty = language.lower().replace("_", "-"), set[str](), True
    with ExitStack() as stack:
        for unit in read_units(open_bytes(path, stack)):
            languages |= unit.keys()
            target = in_language(unit, code) or unit.get(code.split("-")[0])
            for text in unit.values():
                if target and text and text != target:
                    is_empty = False
                    yield TranslatedPair(text, target)
    if is_empty:
        raise DataError(
            f"{path} has no translation into {code!r}, the language of the catalogue (there are "
            f"{', '.join(map(repr, sorted(languages))) or 'no languages'}); name another memory"
        )


def _refuse_spans(path: Path, texts: Sequence[MaskedText]) -> None:
    n_with = sum(bool(text.spans) for text in texts)
    if n_with:
        raise InputError(
            f"{path} has placeholders or tags in {n_with:,} of {len(texts):,} texts, and this "
            "model has not learnt to keep them; train one with data.placeholders, or have the text "
            "between them translated piece by piece: pieces=True"
        )
