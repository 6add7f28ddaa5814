"""Takes and returns text: encodes it, runs texts of similar length side by side, and decodes the
tokens. Every command and the Python API use this file and `decoding/continuing.py`, so that a text
always means the same tokens. The model itself (`OwnEngine`) or CTranslate2 (`decoding/engine.py`)
computes."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Protocol

from clearhead.config import DecodeConfig, GenerateConfig, ModelConfig, TranslateConfig
from clearhead.decoding.beam import beam_search
from clearhead.decoding.between import translate_between
from clearhead.decoding.cached import GenerativeModel
from clearhead.decoding.codec import Codec
from clearhead.decoding.constraints import Constraint, Constraints
from clearhead.decoding.generation import greedy
from clearhead.decoding.keeping import can_keep, keep_spans, keeps_spans
from clearhead.decoding.rating import rated
from clearhead.decoding.results import AnsweredText, Output
from clearhead.decoding.sampling import sample
from clearhead.decoding.sentences import (
    LanguagePair,
    check_can_split,
    join_sentences,
    split_text,
)
from clearhead.decoding.sources import EncodedSource, encode_sources, reader_of
from clearhead.decoding.terms import TermSearch, use_terms
from clearhead.interop.calibration import Calibration
from clearhead.localise.glossary import Glossary
from clearhead.localise.masking import MaskedText
from clearhead.text.pieces import decode_pieces

Outputs = list[list[Output]]


class SeededPrompt(NamedTuple):
    """A prompt with the seed of its own random numbers."""

    tokens: list[int]
    seed: int
    """The seed of this text alone, if tokens are drawn."""


class Engine(Protocol):
    """The software that translates and generates tokens: clearhead itself, or CTranslate2."""

    @property
    def config(self) -> ModelConfig:
        """The configuration of the model."""
        ...

    @property
    def is_constrained(self) -> bool:
        """Tell whether the engine applies constraints; the translations of other engines are
        checked afterwards."""
        ...

    @property
    def constrained(self) -> "Engine":
        """An engine of the same model that applies constraints, which is read when it is first
        needed."""
        ...

    def translate(
        self,
        sources: Sequence[list[int]],
        ends: DecodeConfig,
        how: TranslateConfig,
        constraints: Constraints = None,
    ) -> list[list[Output]]:
        """Return the n best texts of each source."""
        ...

    def generate(
        self,
        prompts: Sequence[SeededPrompt],
        ends: DecodeConfig,
        how: GenerateConfig,
        constraint: Constraint | None,
    ) -> list[Output]:
        """Generate the text that follows each prompt."""
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
        """Return True: this engine applies constraints."""
        return True

    @property
    def constrained(self) -> Engine:
        """The engine itself."""
        return self

    def translate(
        self,
        sources: Sequence[list[int]],
        ends: DecodeConfig,
        how: TranslateConfig,
        constraints: Constraints = None,
    ) -> list[list[Output]]:
        """Return the n best translations of each source, by clearhead's own beam search."""
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
        """Generate a continuation of each prompt, by clearhead's own sampling."""
        return sample(
            self.model,
            [prompt.tokens for prompt in prompts],
            ends,
            how.choice,
            seed=[prompt.seed for prompt in prompts],
            constraint=constraint,
            max_rows=how.batch,
        )


def text_of(output: Output, codec: Codec, behind: Sequence[int] = ()) -> Output:
    """Return the output with its text, which may depend on the tokens before it."""
    text = codec.target.decode(output.tokens, behind=behind)
    return replace(output, text=text, tokenizer=codec.target)


def translate_sources(
    engine: Engine,
    codec: Codec,
    sources: Sequence[EncodedSource],
    config: TranslateConfig,
    calibration: Calibration | None = None,
) -> list[AnsweredText]:
    """Translate each source. Returns translations in the order of the sources, the best first. With
    a calibration, each has its confidence."""
    if codec.keeps_spans:
        answers = _translate_keeping(engine, codec, sources, config, calibration)
    else:
        answers = _translate_plain(engine, codec, sources, config)
    if calibration is None:
        return answers
    return [
        answer._replace(
            outputs=[rated(output, calibration, config.beam) for output in answer.outputs]
        )
        for answer in answers
    ]


def _translate_plain(
    engine: Engine, codec: Codec, sources: Sequence[EncodedSource], config: TranslateConfig
) -> list[AnsweredText]:
    filled = [index for index, source in enumerate(sources) if source.tokens]
    by_length = sorted(filled, key=lambda index: len(sources[index].tokens))
    ends = codec.decode_config(config.max_new)
    searched = engine.translate([sources[index].tokens for index in by_length], ends, config)
    outputs = {
        index: [text_of(output, codec) for output in n_best]
        for index, n_best in zip(by_length, searched)
    }
    outputs = _using_terms(engine, codec, sources, outputs, config)
    return [
        AnsweredText(source.tokens, source.n_cut, outputs.get(n, []))
        for n, source in enumerate(sources)
    ]


def _using_terms(
    engine: Engine,
    codec: Codec,
    sources: Sequence[EncodedSource],
    outputs: dict[int, list[Output]],
    config: TranslateConfig,
) -> dict[int, list[Output]]:
    """Return the translations of each source. clearhead decodes those that lack a term of the
    glossary again."""
    ends = codec.decode_config(config.max_new)
    greedily = replace(config, beam=replace(config.beam, width=1, n_best=1, groups=1))

    def finish(output: Output, masked: MaskedText) -> Output | None:
        if codec.keeps_spans:
            return next(iter(_kept([output], codec, masked)), None)
        return codec.stripped(text_of(output, codec))

    def decode(rows: Sequence[list[int]], constraints: Sequence[Constraint]) -> list[Output]:
        n_best = engine.constrained.translate(rows, ends, greedily, constraints)
        return [outputs[0] for outputs in n_best]

    searches = {
        (index, rank): TermSearch(
            source.tokens,
            source.terms,
            source.masked if codec.keeps_spans else None,
            _space(engine, codec, source, ends),
            output,
            partial(finish, masked=source.masked),
        )
        for index, source in enumerate(sources)
        for rank, output in enumerate(outputs.get(index, []))
        if source.terms
    }
    if not searches:
        return outputs
    use_terms(list(searches.values()), codec.target, decode)
    return {
        index: [
            searches[index, rank].output if (index, rank) in searches else output
            for rank, output in enumerate(n_best)
        ]
        for index, n_best in outputs.items()
    }


def _space(engine: Engine, codec: Codec, source: EncodedSource, ends: DecodeConfig) -> int:
    """Return the number of tokens that a translation can have."""
    prompt = 1 if codec.ids.target_start is None else len(source.tokens)
    return min(ends.max_new, engine.config.max_length - prompt)


def _translate_keeping(
    engine: Engine,
    codec: Codec,
    sources: Sequence[EncodedSource],
    config: TranslateConfig,
    calibration: Calibration | None,
) -> list[AnsweredText]:
    """Return translations that have every span of their source, through the decoder's constraint.
    If an engine without constraints has lost a span, clearhead decodes the text again. If there is
    no space for all spans, the text between them is translated piece by piece. Text that the model
    generates beside a span may still form another span with it (% and d); if this happens in both
    ways, there is no translation."""
    ends, constraints = codec.decode_config(config.max_new), dict[int, Constraint]()
    for index, source in enumerate(sources):
        space = _space(engine, codec, source, ends)
        masked = source.masked
        if source.tokens and masked.has_text and can_keep(masked, codec.target, space):
            constraints[index] = keep_spans(masked, codec.target, space)

    def search(indices: Iterable[int], by: Engine) -> dict[int, list[Output]]:
        order = sorted(indices, key=lambda index: len(sources[index].tokens))
        observed = [constraints[index] for index in order] if by.is_constrained else None
        searched = by.translate([sources[index].tokens for index in order], ends, config, observed)
        return {
            index: _kept(n_best, codec, sources[index].masked)
            for index, n_best in zip(order, searched)
        }

    outputs = search(constraints, engine)
    again = [index for index, kept in outputs.items() if not kept]
    if again and not engine.is_constrained:
        outputs |= search(again, engine.constrained)
    else:
        again = []
    outputs = _using_terms(engine, codec, sources, outputs, config)
    lost = [
        index
        for index, source in enumerate(sources)
        if source.tokens and source.masked.spans and not outputs.get(index)
    ]
    for glossary, indices in _by_glossary(sources, lost):
        translate = partial(_translate_pieces, engine, codec, config, calibration, glossary)
        between = translate_between([sources[index].masked for index in indices], translate)
        for index, output in zip(indices, between):
            if output is not None and sources[index].masked.is_kept_by(output.text):
                outputs[index] = [output]
    return [
        AnsweredText(source.tokens, source.n_cut, outputs.get(n, []), n in again)
        for n, source in enumerate(sources)
    ]


def _by_glossary(
    sources: Sequence[EncodedSource], indices: Sequence[int]
) -> Iterable[tuple[Glossary | None, list[int]]]:
    """Group the indices of the sources by their glossary."""
    groups: dict[int, tuple[Glossary | None, list[int]]] = {}
    for index in indices:
        glossary = sources[index].glossary
        groups.setdefault(id(glossary), (glossary, []))[1].append(index)
    return groups.values()


def _translate_pieces(
    engine: Engine,
    codec: Codec,
    config: TranslateConfig,
    calibration: Calibration | None,
    glossary: Glossary | None,
    pieces: Sequence[str],
) -> Outputs:
    """Return the best translation of each piece of a text."""
    best = replace(config, beam=replace(config.beam, n_best=1))
    answers = translate_texts(
        engine, codec, pieces, best, calibration=calibration, glossary=glossary
    )
    return [answer.outputs for answer in answers]


def _kept(outputs: Sequence[Output], codec: Codec, masked: MaskedText) -> list[Output]:
    """Return the outputs that have every span and no other, with their texts."""
    return [
        output
        for output in (_restored(output, codec, masked) for output in outputs)
        if keeps_spans(masked, codec.target, output.tokens)
        and (not masked.spans or masked.is_kept_by(output.text))
    ]


def _restored(output: Output, codec: Codec, masked: MaskedText) -> Output:
    """Return the output with its text, in which the source's spans are in their places."""
    pieces = decode_pieces(codec.target, output.tokens)
    valid_pieces = [
        piece for piece in pieces if isinstance(piece, str) or piece < len(masked.spans)
    ]
    return replace(output, text=masked.restore(valid_pieces), tokenizer=codec.target)


def translate_texts(
    engine: Engine,
    codec: Codec,
    texts: Sequence[str],
    config: TranslateConfig = TranslateConfig(),  # noqa: B008 (frozen)
    *,
    names: Sequence[str] | None = None,
    split: LanguagePair | None = None,
    calibration: Calibration | None = None,
    glossary: Glossary | None = None,
) -> list[AnsweredText]:
    """Translate each text. Returns translations in the order of the texts, the best first; an empty
    text has none. `names` are the names of the texts in messages ("text 1", "text 2", …). With
    `split`, the sentences of each text are translated one by one. With a `calibration`, each
    translation has its confidence. With a `glossary`, it uses the terms."""
    longest, read = engine.config.max_length, partial(encode_sources, glossary=glossary)
    if split is None:
        sources = read(codec, texts, longest, config.too_long, names=names)
        return translate_sources(engine, codec, sources, config, calibration)
    check_can_split()
    fits = reader_of(codec, longest)
    cut = [split_text(text, split.source, fits, strip=codec.ids.strip) for text in texts]
    sentences = [sentence for split_up in cut for sentence in split_up.sentences]
    sources = read(codec, sentences, longest, config.too_long)
    translations = iter(translate_sources(engine, codec, sources, config, calibration))
    return [
        join_sentences(split_up, [next(translations) for _ in split_up.sentences], split)
        for split_up in cut
    ]
