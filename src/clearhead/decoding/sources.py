"""Texts as a translator reads them: their tokens, and what they must keep."""

from collections.abc import Sequence
from typing import NamedTuple

from clearhead.config.decode import TooLongSource
from clearhead.decoding.codec import Codec
from clearhead.decoding.inputs import name_of
from clearhead.decoding.sentences import Fits
from clearhead.localise.masking import MaskedText, mask

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
