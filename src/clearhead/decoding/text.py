"""Text in, text out: encode, run texts of similar length side by side, decode the tokens. Every
command and the Python API do it here and in `decoding/continuing.py`, so that a text means the
same tokens everywhere. What runs the model is the model itself (`OwnEngine`) or CTranslate2
(`decoding/engine.py`)."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from clearhead.config import DecodeConfig, GenerateConfig, ModelConfig, TranslateConfig
from clearhead.config.decode import TooLongSource
from clearhead.decoding.beam import beam_search
from clearhead.decoding.between import translate_between
from clearhead.decoding.cached import GenerativeModel
from clearhead.decoding.codec import Codec
from clearhead.decoding.constraints import Constraint, Constraints
from clearhead.decoding.generation import greedy
from clearhead.decoding.inputs import name_of
from clearhead.decoding.keeping import can_keep, keep_spans, keeps_spans
from clearhead.decoding.rating import joint_confidence, rated
from clearhead.decoding.results import Output, StopReason
from clearhead.decoding.sampling import sample
from clearhead.decoding.sentences import (
    Fits,
    LanguagePair,
    SplitText,
    check_can_split,
    split_text,
)
from clearhead.interop.calibration import Calibration
from clearhead.localise.masking import MaskedText, mask
from clearhead.text.pieces import decode_pieces

_log = logging.getLogger("clearhead")


class SeededPrompt(NamedTuple):
    """A prompt, with the seed of its own random numbers."""

    tokens: list[int]
    seed: int
    """Of this text alone, where tokens are drawn."""


class Engine(Protocol):
    """What translates and generates tokens: clearhead itself, or CTranslate2."""

    @property
    def config(self) -> ModelConfig:
        """The configuration of the model."""
        ...

    @property
    def is_constrained(self) -> bool:
        """Whether it observes constraints; what another engine translates is looked at after."""
        ...

    def translate(
        self,
        sources: Sequence[list[int]],
        ends: DecodeConfig,
        how: TranslateConfig,
        constraints: Constraints = None,
    ) -> list[list[Output]]:
        """The n best texts of each source."""
        ...

    def generate(
        self,
        prompts: Sequence[SeededPrompt],
        ends: DecodeConfig,
        how: GenerateConfig,
        constraint: Constraint | None,
    ) -> list[Output]:
        """The text that follows each prompt."""
        ...


class OwnEngine:
    """The model itself."""

    def __init__(self, model: GenerativeModel) -> None:
        self.model = model

    @property
    def config(self) -> ModelConfig:
        """The configuration of the model."""
        return self.model.config

    @property
    def is_constrained(self) -> bool:
        """It observes constraints."""
        return True

    def translate(
        self,
        sources: Sequence[list[int]],
        ends: DecodeConfig,
        how: TranslateConfig,
        constraints: Constraints = None,
    ) -> list[list[Output]]:
        """The n best translations of each source, by clearhead's own beam search."""
        if how.beam.width == 1:
            texts = greedy(self.model, sources, ends, constraint=constraints, max_rows=how.batch)
            divisors = [how.beam.normaliser(len(text.tokens)) for text in texts]
            return [[replace(text, score=text.score / n)] for text, n in zip(texts, divisors)]
        return beam_search(
            self.model, sources, ends, how.beam, constraint=constraints, max_sentences=how.batch
        )

    def generate(
        self,
        prompts: Sequence[SeededPrompt],
        ends: DecodeConfig,
        how: GenerateConfig,
        constraint: Constraint | None,
    ) -> list[Output]:
        """A continuation of each prompt, by clearhead's own sampling."""
        return sample(
            self.model,
            [prompt.tokens for prompt in prompts],
            ends,
            how.choice,
            seed=[prompt.seed for prompt in prompts],
            constraint=constraint,
            max_rows=how.batch,
        )


class AnsweredText(NamedTuple):
    """What became of one text; without outputs if it was empty."""

    given: list[int]
    """The tokens that the model was given."""
    n_cut: int
    """Tokens of the text that the model was not given."""
    outputs: list[Output]

    @property
    def texts(self) -> list[str]:
        """Of the outputs."""
        return [output.text for output in self.outputs]


def text_of(output: Output, codec: Codec, behind: Sequence[int] = ()) -> Output:
    """The output with its text, which may depend on the tokens that it stands behind."""
    text = codec.target.decode(output.tokens, behind=behind)
    return replace(output, text=text, tokenizer=codec.target)


NOTHING = mask("")


def reader_of(codec: Codec, longest: int) -> Fits:
    """Whether a model of `longest` positions can read a sentence; one of few bytes needs no
    counting."""
    most = codec.longest_source(longest)

    def fits(sentence: str) -> bool:
        if 4 * len(sentence) + 2 <= most:
            return True
        return len(codec.encode_sources([sentence])[0]) <= most

    return fits


class EncodedSource(NamedTuple):
    """A text as the encoder reads it."""

    given: list[int]
    """Its tokens; none of an empty text, or of one that is left out."""
    n_cut: int
    """Tokens of the text that the model is not given."""
    masked: MaskedText = NOTHING
    """The text with numbers for its spans, if the model has reserved tokens for them."""


def encode_sources(
    codec: Codec,
    texts: Sequence[str],
    longest: int,
    too_long: TooLongSource,
    *,
    names: Sequence[str] | None = None,
) -> list[EncodedSource]:
    """Each text as `translate_sources` takes it, for a model that reads `longest` tokens."""
    if codec.keeps_spans:
        return encode_masked(codec, [mask(text) for text in texts], longest, too_long, names=names)
    filled = [index for index, text in enumerate(texts) if text.strip()]
    encoded = dict(zip(filled, codec.encode_sources([texts[index] for index in filled])))
    return [
        _fitted(codec, encoded.get(index, []), longest, too_long, name_of(names, index))
        for index in range(len(texts))
    ]


def encode_masked(
    codec: Codec,
    texts: Sequence[MaskedText],
    longest: int,
    too_long: TooLongSource,
    *,
    names: Sequence[str] | None = None,
) -> list[EncodedSource]:
    """The same, of texts whose spans are known."""
    filled = [index for index, text in enumerate(texts) if text.has_text or text.spans]
    encoded = dict(zip(filled, codec.encode_masked([texts[index] for index in filled])))
    fitted = [
        _fitted(codec, encoded.get(index, []), longest, too_long, name_of(names, index))
        for index in range(len(texts))
    ]
    return [source._replace(masked=text) for source, text in zip(fitted, texts)]


def _fitted(
    codec: Codec, ids: list[int], longest: int, too_long: TooLongSource, name: str
) -> EncodedSource:
    """What the model is given of a text."""
    if too_long == "skip" and len(ids) > codec.longest_source(longest):
        return EncodedSource([], len(ids))
    cut = "cut" if too_long == "cut" else "refuse"
    given = codec.fit_source(ids, longest, too_long=cut, name=name)
    return EncodedSource(given, len(ids) - len(given))


def translate_sources(
    engine: Engine,
    codec: Codec,
    sources: Sequence[EncodedSource],
    config: TranslateConfig,
    calibration: Calibration | None = None,
) -> list[AnsweredText]:
    """Translations of each source, the best first, in the order of the sources; with a calibration,
    each has its confidence."""
    if codec.keeps_spans:
        answers = _translate_keeping(engine, codec, sources, config, calibration)
    else:
        answers = _translate_plain(engine, codec, sources, config)
    if calibration is None:
        return answers
    return [
        answer._replace(outputs=[rated(each, calibration, config.beam) for each in answer.outputs])
        for answer in answers
    ]


def _translate_plain(
    engine: Engine, codec: Codec, sources: Sequence[EncodedSource], config: TranslateConfig
) -> list[AnsweredText]:
    filled = [index for index, source in enumerate(sources) if source.given]
    by_length = sorted(filled, key=lambda index: len(sources[index].given))
    ends = codec.decode_config(config.max_new)
    searched = engine.translate([sources[index].given for index in by_length], ends, config)
    outputs = dict(zip(by_length, searched))
    return [
        AnsweredText(
            source.given, source.n_cut, [text_of(each, codec) for each in outputs.get(n, [])]
        )
        for n, source in enumerate(sources)
    ]


def _translate_keeping(
    engine: Engine,
    codec: Codec,
    sources: Sequence[EncodedSource],
    config: TranslateConfig,
    calibration: Calibration | None,
) -> list[AnsweredText]:
    """Translations that have every span of their source: by the constraint of the decoder; or else,
    where an engine observes none or there is no space for them, because the text between the spans
    is translated piece by piece. Text that the model generates beside a span may still form another
    with it (% and d); where both ways do, there is no translation."""
    ends, constraints = codec.decode_config(config.max_new), dict[int, Constraint]()
    for index, source in enumerate(sources):
        prompt = 1 if codec.ids.target_start is None else len(source.given)
        space = min(ends.max_new, engine.config.max_length - prompt)
        if source.given and source.masked.has_text and can_keep(source.masked, codec.target, space):
            constraints[index] = keep_spans(source.masked, codec.target, space)
    by_length = sorted(constraints, key=lambda index: len(sources[index].given))
    searched = engine.translate(
        [sources[index].given for index in by_length],
        ends,
        config,
        [constraints[index] for index in by_length] if engine.is_constrained else None,
    )
    outputs: dict[int, list[Output]] = {}
    for index, found in zip(by_length, searched):
        masked = sources[index].masked
        outputs[index] = [
            output
            for output in (_restored(each, codec, masked) for each in found)
            if not masked.spans
            or (keeps_spans(masked, codec.target, output.tokens) and masked.is_kept_by(output.text))
        ]
    lost = [
        index
        for index, source in enumerate(sources)
        if source.given and source.masked.spans and not outputs.get(index)
    ]
    if lost:
        one = replace(config, beam=replace(config.beam, n_best=1))

        def translate(pieces: Sequence[str]) -> list[list[Output]]:
            answers = translate_texts(engine, codec, pieces, one, calibration=calibration)
            return [answer.outputs for answer in answers]

        between = translate_between([sources[index].masked for index in lost], translate)
        for index, output in zip(lost, between):
            if output is not None and sources[index].masked.is_kept_by(output.text):
                outputs[index] = [output]
    return [
        AnsweredText(source.given, source.n_cut, outputs.get(n, []))
        for n, source in enumerate(sources)
    ]


def _restored(output: Output, codec: Codec, masked: MaskedText) -> Output:
    """The output with its text, the spans of the source in their places."""
    pieces = decode_pieces(codec.target, output.tokens)
    known = [each for each in pieces if isinstance(each, str) or each < len(masked.spans)]
    return replace(output, text=masked.restore(known), tokenizer=codec.target)


def translate_texts(
    engine: Engine,
    codec: Codec,
    texts: Sequence[str],
    config: TranslateConfig = TranslateConfig(),  # noqa: B008 (frozen)
    *,
    names: Sequence[str] | None = None,
    split: LanguagePair | None = None,
    calibration: Calibration | None = None,
) -> list[AnsweredText]:
    """Translations of each text, the best first, in the order of the texts. An empty text has none.
    `names` are what messages call the texts ("text 1", "text 2", …). With `split`, the sentences of
    each text are translated one by one. With a `calibration`, each translation has its
    confidence."""
    longest = engine.config.max_length
    if split is None:
        sources = encode_sources(codec, texts, longest, config.too_long, names=names)
        return translate_sources(engine, codec, sources, config, calibration)
    check_can_split()
    fits = reader_of(codec, longest)
    cut = [split_text(text, split.source, fits, strip=codec.ids.strip) for text in texts]
    sentences = [sentence for each in cut for sentence in each.sentences]
    sources = encode_sources(codec, sentences, longest, config.too_long)
    translations = iter(translate_sources(engine, codec, sources, config, calibration))
    return [
        join_sentences(each, [next(translations) for _ in each.sentences], split) for each in cut
    ]


def join_sentences(
    text: SplitText, translations: Sequence[AnsweredText], pair: LanguagePair
) -> AnsweredText:
    """One text again: its n-th translation is made of the n-th of each sentence."""
    n_best = max((len(answer.outputs) for answer in translations), default=0)
    outputs: list[Output] = []
    for rank in range(n_best):
        # A short sentence may have fewer translations than another: then its last.
        chosen = [min(rank, len(answer.outputs) - 1) for answer in translations]
        parts = [
            answer.outputs[choice] for answer, choice in zip(translations, chosen) if choice >= 0
        ]
        written = [
            answer.outputs[choice].text if choice >= 0 else ""
            for answer, choice in zip(translations, chosen)
        ]
        early: list[StopReason] = [part.stop for part in parts if part.stop != "end"]
        outputs.append(
            Output(
                text=text.joined(written, pair.joint),
                tokenizer=parts[0].tokenizer,
                tokens=[token for part in parts for token in part.tokens],
                log_probs=[log_prob for part in parts for log_prob in part.log_probs],
                score=sum(part.score for part in parts),
                stop=early[0] if early else "end",
                calibrated=joint_confidence(parts),
            )
        )
    given = [token for answer in translations for token in answer.given]
    return AnsweredText(given, sum(answer.n_cut for answer in translations), outputs)


def warn_of_too_long(
    names: Sequence[str], answers: Sequence[AnsweredText], codec: Codec, config: ModelConfig
) -> None:
    """Warns of each text that was too long to translate whole: its name, the limit, the remedy."""
    longest = codec.longest_source(config.max_length)
    empty = "its translation is empty; split it, or have it cut: too_long='cut'"
    for name, answer in zip(names, answers):
        what = "its end was cut" if answer.given else empty
        warn_of_cut(name, len(answer.given), answer.n_cut, longest, what)


def warn_of_cut(name: str, n_given: int, n_cut: int, longest: int, what: str) -> None:
    """Warns if the model is not given all of a text."""
    if n_cut:
        told = "%s has %d tokens, but the model takes %d: %s"
        _log.warning(told, name, n_given + n_cut, longest, what)
