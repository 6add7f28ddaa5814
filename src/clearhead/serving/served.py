"""Models, opened for a server: translators run in CTranslate2, decoders in clearhead itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from clearhead.config import BeamConfig, TranslateConfig
from clearhead.decoding.codec import Codec
from clearhead.decoding.engine import CTranslate2Engine, EnginePrecision
from clearhead.decoding.opening import open_codec, open_folder
from clearhead.decoding.results import AnsweredText
from clearhead.decoding.sentences import LanguagePair, SplitText, join_sentences, split_text
from clearhead.decoding.sources import EncodedSource, encode_sources, reader_of
from clearhead.decoding.text import translate_sources
from clearhead.interop.calibration import read_calibration
from clearhead.localise.glossary import Glossary
from clearhead.models import CausalLM
from clearhead.serving.batching import N_QUEUES


@dataclass(frozen=True, kw_only=True)
class ModelToServe:
    """What a worker process needs to open a model."""

    name: str
    folder: Path
    pair: LanguagePair | None
    """The languages of a translator; None: the model is a decoder or a classifier."""
    classifies: bool = False
    opened: object = None
    """An object that must exist as long as this one, such as a temporary folder. It is not sent to
    other processes."""

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "opened": None}


@dataclass(frozen=True, kw_only=True)
class Searching:
    """The search settings of translators."""

    beam: int
    max_new: int
    precision: EnginePrecision
    engine_folder: Path | None


class ServedText(NamedTuple):
    """A translation."""

    text: str
    confidence: float | None = None
    """The chrF++ to expect, from 0 to 1; None: the model is not calibrated, or there was nothing to
    translate."""


class SplitTexts:
    """The texts of a request, split into sentences for a translator."""

    def __init__(
        self, translator: "ServedTranslator", texts: Sequence[str], glossary: Glossary | None = None
    ) -> None:
        self.pair = translator.pair
        fits = reader_of(translator.codec, translator.longest)
        self.texts: list[SplitText] = [
            split_text(text, self.pair.source, fits, strip=translator.codec.ids.strip)
            for text in texts
        ]
        sentences = [sentence for text in self.texts for sentence in text.sentences]
        self.sources = encode_sources(
            translator.codec, sentences, translator.longest, "refuse", glossary=glossary
        )

    def joined(self, answered: Sequence[AnsweredText]) -> list[list[ServedText]]:
        """Return the translations of each text, the best first. The translation of a text that is
        only white space is the text itself."""
        rest = iter(answered)
        answers: list[list[ServedText]] = []
        for text in self.texts:
            own = join_sentences(text, [next(rest) for _ in text.sentences], self.pair)
            served = [ServedText(output.text, output.confidence) for output in own.outputs]
            answers.append(served or [ServedText(text.between[0])])
        return answers


class ServedTranslator:
    """A translator, which splits text into sentences and translates them."""

    def __init__(self, to_serve: ModelToServe, how: Searching) -> None:
        assert to_serve.pair is not None
        self.name, self.pair, self.how = to_serve.name, to_serve.pair, how
        self.engine = CTranslate2Engine(
            to_serve.folder, precision=how.precision, folder=how.engine_folder, n_calls=N_QUEUES
        )
        self.codec: Codec = open_codec(to_serve.folder)
        self.longest = self.engine.config.max_length
        self.calibration = read_calibration(to_serve.folder)

    def split(self, texts: Sequence[str], glossary: Glossary | None = None) -> SplitTexts:
        """Split the texts into sentences that the model can read."""
        return SplitTexts(self, texts, glossary)

    def translate(self, sources: Sequence[EncodedSource], n_best: int) -> list[AnsweredText]:
        """Return the n best translations of each sentence."""
        beam = BeamConfig(width=max(self.how.beam, n_best), n_best=n_best)
        config = TranslateConfig(beam=beam, max_new=self.how.max_new)
        return translate_sources(self.engine, self.codec, sources, config, self.calibration)


class ServedDecoder:
    """A language model that clearhead itself runs."""

    def __init__(self, to_serve: ModelToServe) -> None:
        opened = open_folder(to_serve.folder)
        self.name, self.codec = to_serve.name, opened.codec
        # Half precision saves space in a folder; processors compute in fp32.
        self.model: CausalLM = opened.language_model.float()
