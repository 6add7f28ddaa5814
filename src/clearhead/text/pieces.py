"""Texts with reserved tokens: pieces of text, the numbers of reserved tokens that replace spans
between them, and terms with their translations."""

from collections.abc import Iterable, Sequence

from clearhead.text.tokenizer import Tokenizer

TextPieces = Sequence[str | int | tuple[str, str]]
"""A number n stands for the tokenizer's n-th reserved token, two strings for a term and its
translation."""


def encode_pieces(tokenizer: Tokenizer, texts: Sequence[TextPieces]) -> list[list[int]]:
    """Encode several texts. Only a number or a term gives a reserved token; no text can spell
    one."""
    strings = [
        string
        for text in texts
        for piece in text
        if not isinstance(piece, int)
        for string in ([piece] if isinstance(piece, str) else piece)
    ]
    encoded = iter(tokenizer.encode_batch(strings))

    def ids_of(piece: str | int | tuple[str, str]) -> list[int]:
        if isinstance(piece, int):
            return [tokenizer.placeholder_ids[piece]]
        if isinstance(piece, str):
            return next(encoded)
        start, between, end = tokenizer.term_ids
        return [start, *next(encoded), between, *next(encoded), end]

    return [[index for piece in text for index in ids_of(piece)] for text in texts]


def decode_pieces(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str | int]:
    """Decode ids into pieces. Other control tokens are left out."""
    numbers = {index: number for number, index in enumerate(tokenizer.placeholder_ids)}
    stops = [at for at, index in enumerate(ids) if index in numbers]
    pieces: list[str | int] = []
    for start, stop in zip([0, *(at + 1 for at in stops)], [*stops, len(ids)]):
        if text := tokenizer.decode(ids[start:stop], behind=ids[:start]):
            pieces.append(text)
        if stop < len(ids):
            pieces.append(numbers[ids[stop]])
    return pieces


def text_with_numbers(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """Return the text of the ids, with {n} for the n-th reserved token."""
    pieces = decode_pieces(tokenizer, ids)
    return "".join(f"{{{piece}}}" if isinstance(piece, int) else piece for piece in pieces)


def tokens_with(tokenizer: Tokenizer, characters: Iterable[str]) -> dict[str, frozenset[int]]:
    """Return the tokens whose text has each of these ASCII characters."""
    table = tokenizer.token_bytes
    if table is None:
        vocabulary = tokenizer.library.get_vocab(with_added_tokens=True)
        table = {index: token.encode() for token, index in vocabulary.items()}
    control = tokenizer.control_ids
    return {
        character: frozenset(
            index
            for index, content in table.items()
            if character.encode() in content and index not in control
        )
        for character in characters
    }
