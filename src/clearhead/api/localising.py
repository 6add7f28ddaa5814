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
from clearhead.errors import DataError, InputError, function, setting
from clearhead.intake.tables import in_language, read_units
from clearhead.intake.unpack import open_bytes
from clearhead.localise.catalogues import Catalogue, TranslatedForms, check_can_write
from clearhead.localise.filling import Draft, Filled, fill, memory_of
from clearhead.localise.glossary import TermUse, as_glossary
from clearhead.localise.language_codes import is_same_language
from clearhead.localise.masking import MaskedText
from clearhead.serving.languages import pair_in_name


def fill_open_entries(
    model: TokenizedModel, engine: Engine, path: Path, output: Path, options: CatalogueOptions
) -> Filled:
    """Fill the open entries of a PO or XLIFF file, and write the result to `output`. What somebody
    writes into the file in the meantime stays."""
    catalogue, translator = Catalogue(path), _CatalogueTranslator(model, engine, path, options)
    _refuse_other_language(catalogue, model.name)
    check_can_write(output)
    memories = [as_path("memory", memory) for memory in options.memory]
    others = (forms for memory in memories for forms in _remembered(memory, catalogue))
    memory = memory_of([*others, *catalogue.finished()])
    answers: dict[MaskedText, Draft | None] = {}

    def translate(texts: Sequence[MaskedText]) -> list[Draft | None]:
        new = [text for text in texts if text not in answers]
        answers.update(zip(new, translator(new) if new else ()))
        return [answers[text] for text in texts]

    filled = fill(catalogue, memory, translate, leave_below=options.leave_below)
    while catalogue.has_changed():
        catalogue = Catalogue(path)
        filled = fill(catalogue, memory, translate, leave_below=options.leave_below)
    filled.again = translator.n_again
    filled.terms = len(translator.terms)
    filled.terms_used = sum(term.is_used for term in translator.terms)
    catalogue.write(output)
    return filled


def _refuse_other_language(catalogue: Catalogue, name: str) -> None:
    """Raises if a catalogue is for another language than the one that the model's name says."""
    pair, language = pair_in_name(name), catalogue.stated_language
    if pair is None or language is None or is_same_language(pair.target, language):
        return
    says = "Language" if catalogue.kind == "po" else "target language"
    raise DataError(
        f"{catalogue.path} is for {language!r}, as its {says} says, but {name} translates into "
        f"{pair.target!r}; use a model that translates into {language!r}, or correct the {says} in "
        "the file"
    )


class _CatalogueTranslator:
    """Translates texts of a catalogue. It counts how often clearhead decoded a text again, and
    which terms of the glossary were used."""

    def __init__(
        self, model: TokenizedModel, engine: Engine, path: Path, options: CatalogueOptions
    ) -> None:
        if options.leave_below and model.calibration is None:
            raise InputError(
                f"{setting('leave_below', options.leave_below)} needs a calibrated model, and "
                f"{model.folder} is not calibrated; run {function('calibrate')} first"
            )
        self.engine, self.codec, self.path = engine, model.opened.codec, path
        self.config, self.by_pieces = options.config(), options.pieces
        self.calibration, self.glossary = model.calibration, as_glossary(options.glossary)
        self.n_again = 0
        self.terms: list[TermUse] = []

    def __call__(self, texts: Sequence[MaskedText]) -> list[Draft | None]:
        """Return the best translation of each text, if it has one."""
        if self.by_pieces:
            outputs = translate_between(texts, self._translate_strings)
        elif self.codec.keeps_spans:
            outputs = map(_best, self._translate_whole(texts))
        else:
            _refuse_spans(self.path, texts)
            strings = [text.restore(text.pieces) for text in texts]
            outputs = map(_best, self._translate_strings(strings))
        return [output and self._draft(output) for output in outputs]

    def _translate_whole(self, texts: Sequence[MaskedText]) -> list[list[Output]]:
        """Translate texts for a model that keeps their spans."""
        longest, too_long = self.engine.config.max_length, self.config.too_long
        sources = encode_masked(self.codec, texts, longest, too_long, glossary=self.glossary)
        answers = translate_sources(self.engine, self.codec, sources, self.config, self.calibration)
        return self._outputs([text.restore(text.pieces) for text in texts], answers)

    def _translate_strings(self, strings: Sequence[str]) -> list[list[Output]]:
        answers = translate_texts(
            self.engine,
            self.codec,
            strings,
            self.config,
            calibration=self.calibration,
            glossary=self.glossary,
        )
        return self._outputs(strings, answers)

    def _outputs(
        self, strings: Sequence[str], answers: Sequence[AnsweredText]
    ) -> list[list[Output]]:
        names = [repr(string[:40]) for string in strings]
        warn_of_too_long(names, answers, self.codec, self.engine.config)
        self.n_again += sum(answer.again for answer in answers)
        return [answer.outputs for answer in answers]

    def _draft(self, output: Output) -> Draft:
        self.terms.extend(output.terms)
        if self.calibration is None:
            return Draft(output.text, output.mean_probability)
        confidence = rated(output, self.calibration, self.config.beam).confidence
        assert confidence is not None
        return Draft(output.text, confidence, is_calibrated=True)


def _best(outputs: Sequence[Output]) -> Output | None:
    return outputs[0] if outputs else None


def _remembered(path: Path, catalogue: Catalogue) -> Iterator[TranslatedForms]:
    """Yield what people have translated into the language of a catalogue, from another catalogue or
    from a TMX file. In a TMX file, every other language counts as a source."""
    if not path.name.lower().endswith((".tmx", ".tmx.gz", ".tmx.zst")):
        other = Catalogue(path)
        own, its = catalogue.stated_language, other.stated_language
        if own is not None and its is not None and not is_same_language(own, its):
            raise DataError(
                f"{path} translates into {its!r}, but {catalogue.path} needs translations into "
                f"{own!r}; give a memory of that language"
            )
        yield from other.finished()
        return
    language = catalogue.language
    code, languages, is_empty = language.lower().replace("_", "-"), set[str](), True
    with ExitStack() as stack:
        for unit in read_units(open_bytes(path, stack)):
            languages |= unit.keys()
            target = in_language(unit, code) or unit.get(code.split("-")[0])
            for text in unit.values():
                if target and text and text != target:
                    is_empty = False
                    yield TranslatedForms((text,), (target,))
    if is_empty:
        raise DataError(
            f"{path} has no translation into {code!r}, the language of the catalogue (it has "
            f"{', '.join(map(repr, sorted(languages))) or 'no languages'}); give another "
            "translation memory"
        )


def _refuse_spans(path: Path, texts: Sequence[MaskedText]) -> None:
    n_with = sum(bool(text.spans) for text in texts)
    if n_with:
        raise InputError(
            f"{path} has placeholders or tags in {n_with:,} of {len(texts):,} texts, and this "
            "model has not learnt to keep them; train one with data.placeholders, or have the text "
            f"between them translated piece by piece: {setting('pieces', True)}"
        )
