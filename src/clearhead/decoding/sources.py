"""Prepares texts as a translator reads them: their tokens, and the spans that they must keep."""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from clearhead.config import ModelConfig
from clearhead.config.decode import TooLongSource
from clearhead.decoding.codec import Codec
from clearhead.decoding.inputs import name_of
from clearhead.decoding.results import AnsweredText
from clearhead.decoding.sentences import Fits
from clearhead.errors import Message, setting
from clearhead.localise.glossary import Glossary, Term
from clearhead.localise.masking import MaskedText, mask

_log = logging.getLogger("clearhead")
T = TypeVar("T")
NOTHING = mask("")


def reader_of(codec: Codec, longest: int) -> Fits:
    """Return a function that tells whether a model with `longest` positions can read a sentence. A
    sentence of few bytes needs no counting."""
    most = codec.longest_source(longest)

    def fits(sentence: str) -> bool:
        if 4 * len(sentence) + 2 <= most:
            return True
        return len(codec.encode_sources([sentence])[0]) <= most

    return fits


class EncodedSource(NamedTuple):
    """A text in the form in which the encoder reads it."""

    tokens: list[int]
    """The tokens of the text; none if the text is empty or left out."""
    n_cut: int
    """The number of tokens of the text that the model does not read."""
    masked: MaskedText = NOTHING
    """The text with numbers for its spans, if the model has reserved tokens for them."""
    glossary: Glossary | None = None
    terms: tuple[Term, ...] = ()
    """The terms of the glossary that occur in the text."""


def encode_sources(
    codec: Codec,
    texts: Sequence[str],
    longest: int,
    too_long: TooLongSource,
    *,
    names: Sequence[str] | None = None,
    glossary: Glossary | None = None,
) -> list[EncodedSource]:
    """Encode each text for `translate_sources`, for a model that reads `longest` tokens."""
    if codec.keeps_spans:
        masked = [mask(text) for text in texts]
        return encode_masked(codec, masked, longest, too_long, names=names, glossary=glossary)
    filled = [index for index, text in enumerate(texts) if text.strip()]
    encode = partial(_encoded, codec.encode_sources, codec.longest_source(longest), glossary)
    encoded = dict(zip(filled, encode([texts[index] for index in filled])))
    fitted = [
        _fitted(codec, encoded.get(index, []), longest, too_long, name_of(names, index))
        for index in range(len(texts))
    ]
    return [_looked_up(source, glossary, [text]) for source, text in zip(fitted, texts)]


def encode_masked(
    codec: Codec,
    texts: Sequence[MaskedText],
    longest: int,
    too_long: TooLongSource,
    *,
    names: Sequence[str] | None = None,
    glossary: Glossary | None = None,
) -> list[EncodedSource]:
    """Encode texts whose spans are known, for `translate_sources`."""
    filled = [index for index, text in enumerate(texts) if text.has_text or text.spans]
    encode = partial(_encoded, codec.encode_masked, codec.longest_source(longest), glossary)
    encoded = dict(zip(filled, encode([texts[index] for index in filled])))
    fitted = [
        _fitted(codec, encoded.get(index, []), longest, too_long, name_of(names, index))
        for index in range(len(texts))
    ]
    return [
        _looked_up(source, glossary, text.pieces)._replace(masked=text)
        for source, text in zip(fitted, texts)
    ]


def _encoded(
    encode: Callable[[Sequence[T], Glossary | None], list[list[int]]],
    longest: int,
    glossary: Glossary | None,
    texts: Sequence[T],
) -> list[list[int]]:
    """Return the tokens of the texts. A text that is too long with its terms is read without
    them."""
    encoded = encode(texts, glossary)
    if glossary is None:
        return encoded
    long = [number for number, ids in enumerate(encoded) if len(ids) > longest]
    for number, ids in zip(long, encode([texts[number] for number in long], None)):
        encoded[number] = ids
    return encoded


def _looked_up(
    source: EncodedSource, glossary: Glossary | None, pieces: Sequence[str | int]
) -> EncodedSource:
    """Return the source with the terms of its text."""
    if glossary is None or not source.tokens:
        return source
    return source._replace(glossary=glossary, terms=glossary.terms_in(pieces))


def _fitted(
    codec: Codec, ids: list[int], longest: int, too_long: TooLongSource, name: str
) -> EncodedSource:
    """Return the part of a text that the model reads."""
    if too_long == "skip" and len(ids) > codec.longest_source(longest):
        return EncodedSource([], len(ids))
    cut = "cut" if too_long == "cut" else "refuse"
    tokens = codec.fit_source(ids, longest, too_long=cut, name=name)
    return EncodedSource(tokens, len(ids) - len(tokens))


def warn_of_too_long(
    names: Sequence[str], answers: Sequence[AnsweredText], codec: Codec, config: ModelConfig
) -> None:
    """Warn of each text that was too long to translate whole, with its name, the limit and the
    remedy."""
    longest = codec.longest_source(config.max_length)
    empty = f"its translation is empty; split it, or have it cut: {setting('too_long', 'cut')}"
    for name, answer in zip(names, answers):
        what = "its end was cut" if answer.tokens_read else empty
        warn_of_cut(name, len(answer.tokens_read), answer.n_cut, longest, what)


def warn_of_cut(name: str, n_given: int, n_cut: int, longest: int, what: str) -> None:
    """Warn if the model does not read all of a text."""
    if n_cut:
        n_tokens = n_given + n_cut
        _log.warning(
            Message(f"{name} has {n_tokens} tokens, but the model takes {longest}: {what}")
        )
