"""Translates texts whose spans may not change, with a model that has not learnt to copy spans or
has too few reserved tokens: the text between the spans is translated piece by piece."""

from collections.abc import Callable, Sequence

from clearhead.decoding.rating import joint_confidence
from clearhead.decoding.results import Output, StopReason, joint_terms
from clearhead.localise.masking import MaskedText

TranslatePieces = Callable[[Sequence[str]], Sequence[Sequence[Output]]]
"""Returns the translations of each piece, the best first."""


def translate_between(
    texts: Sequence[MaskedText], translate: TranslatePieces
) -> list[Output | None]:
    """Translate each text, and keep its spans in the order of the source. The result is None if a
    piece has no translation."""
    pieces = sorted({piece for text in texts for piece in _with_words(text)})
    answers = {piece: outputs[0] for piece, outputs in zip(pieces, translate(pieces)) if outputs}
    return [
        _joined(text, answers) if all(piece in answers for piece in _with_words(text)) else None
        for text in texts
    ]


def _with_words(text: MaskedText) -> list[str]:
    """Return the pieces that can be translated."""
    strings = [piece for piece in text.pieces if isinstance(piece, str)]
    return [piece for piece in strings if any(character.isalpha() for character in piece)]


def _joined(text: MaskedText, answers: dict[str, Output]) -> Output:
    """Join the text with its translated pieces. Each piece keeps the white space at its ends."""
    written = [
        piece.replace(piece.strip(), answers[piece].text.strip())
        if isinstance(piece, str) and piece in answers
        else piece
        for piece in text.pieces
    ]
    parts = [answers[piece] for piece in _with_words(text)]
    cut: list[StopReason] = [part.stop for part in parts if part.stop != "end"]
    return Output(
        text=text.restore(written),
        tokens=[token for part in parts for token in part.tokens],
        log_probs=[log_prob for part in parts for log_prob in part.log_probs],
        score=sum(part.score for part in parts),
        stop=cut[0] if cut else "end",
        confidence=joint_confidence(parts),
        terms=joint_terms(parts),
    )
