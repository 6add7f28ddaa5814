"""Text in, text out: encode, run texts of similar length side by side, decode the tokens. Every
command and the Python API do it here and in `decoding/continuing.py`, so that a text means the
same tokens everywhere. What runs the model is the model itself (`OwnEngine`) or CTranslate2
(`decoding/engine.py`)."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from clearhead.config import DecodeConfig, GenerateConfig, ModelConfig, TranslateConfig
from clearhead.decoding.beam import beam_search
from clearhead.decoding.between import translate_between
from clearhead.decoding.cached import GenerativeModel
from clearhead.decoding.codec import Codec
from clearhead.decoding.constraints import Constraint, Constraints
from clearhead.decoding.generation import greedy
from clearhead.decoding.keeping import can_keep, keep_spans, keeps_spans
from clearhead.decoding.rating import joint_confidence, rated
from clearhead.decoding.results import Output, StopReason
from clearhead.decoding.sampling import sample
from clearhead.decoding.sentences import (
    LanguagePair,
    SplitText,
    check_can_split,
    split_text,
)
from clearhead.decoding.sources import EncodedSource, encode_sources, reader_of
from clearhead.interop.calibration import Calibration
from clearhead.localise.masking import MaskedText
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

    @property
    def constrained(self) -> "Engine":
        """An engine of the same model that observes constraints, read when it is first needed."""
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

    @property
    def constrained(self) -> Engine:
        """Itself."""
        return self

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
    again: bool = False
    """Whether clearhead has decoded it again, since the translation of another engine had lost
    something."""

    @property
    def texts(self) -> list[str]:
        """Of the outputs."""
        return [output.text for output in self.outputs]


def text_of(output: Output, codec: Codec, behind: Sequence[int] = ()) -> Output:
    """The output with its text, which may depend on the tokens that it stands behind."""
    text = codec.target.decode(output.tokens, behind=behind)
    return replace(output, text=text, tokenizer=codec.target)


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
            source.given, source.n_cut, [text_of(output, codec) for output in outputs.get(n, [])]
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
    """Translations that have every span of their source: by the constraint of the decoder. What an
    engine without constraints has lost is decoded again by clearhead. Where there is no space for
    all spans, the text between them is translated piece by piece. Text that the model generates
    beside a span may still form another with it (% and d); where both ways do, there is no
    translation."""
    ends, constraints = codec.decode_config(config.max_new), dict[int, Constraint]()
    for index, source in enumerate(sources):
        prompt = 1 if codec.ids.target_start is None else len(source.given)
        space = min(ends.max_new, engine.config.max_length - prompt)
        if source.given and source.masked.has_text and can_keep(source.masked, codec.target, space):
            constraints[index] = keep_spans(source.masked, codec.target, space)

    def search(indices: Iterable[int], by: Engine) -> dict[int, list[Output]]:
        order = sorted(indices, key=lambda index: len(sources[index].given))
        observed = [constraints[index] for index in order] if by.is_constrained else None
        found = by.translate([sources[index].given for index in order], ends, config, observed)
        return {
            index: _kept(outputs, codec, sources[index].masked)
            for index, outputs in zip(order, found)
        }

    outputs = search(constraints, engine)
    again = [index for index, found in outputs.items() if not found]
    if again and not engine.is_constrained:
        outputs |= search(again, engine.constrained)
    else:
        again = []
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
        AnsweredText(source.given, source.n_cut, outputs.get(n, []), n in again)
        for n, source in enumerate(sources)
    ]


def _kept(outputs: Sequence[Output], codec: Codec, masked: MaskedText) -> list[Output]:
    """Those that have every span and no other, with their texts."""
    return [
        output
        for output in (_restored(each, codec, masked) for each in outputs)
        if keeps_spans(masked, codec.target, output.tokens)
        and (not masked.spans or masked.is_kept_by(output.text))
    ]


def _restored(output: Output, codec: Codec, masked: MaskedText) -> Output:
    """The output with its text, the spans of the source in their places."""
    pieces = decode_pieces(codec.target, output.tokens)
    known = [piece for piece in pieces if isinstance(piece, str) or piece < len(masked.spans)]
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
    sentences = [sentence for split_up in cut for sentence in split_up.sentences]
    sources = encode_sources(codec, sentences, longest, config.too_long)
    translations = iter(translate_sources(engine, codec, sources, config, calibration))
    return [
        join_sentences(split_up, [next(translations) for _ in split_up.sentences], split)
        for split_up in cut
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
    tokens_given = [token for answer in translations for token in answer.given]
    return AnsweredText(tokens_given, sum(answer.n_cut for answer in translations), outputs)


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
