"""Returns text while it is decoded. Each piece has whole characters, and the pieces together are
the whole text."""

import codecs
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from clearhead.config import Choice, DecodeConfig
from clearhead.decoding.cached import GenerativeModel
from clearhead.decoding.constraints import Constraint
from clearhead.decoding.generation import MAX_ROWS, decode_tokens
from clearhead.decoding.results import StopReason
from clearhead.decoding.sampling import chooser
from clearhead.errors import InputError
from clearhead.text.tokenizer import Tokenizer

HALF = "\ufffd"  # what a decoder puts where a character is not complete


class TextStream:
    """Takes tokens and returns text, never half a character.

    A token of a byte-level vocabulary may hold part of a character: it is held back until the rest
    has arrived. The pieces, and what `rest` returns at the end, make `tokenizer.decode` of all
    tokens `behind` those of a prompt.
    """

    def __init__(self, tokenizer: Tokenizer, behind: Sequence[int] = ()) -> None:
        self.tokenizer = tokenizer
        self.behind = behind
        self.ids: list[int] = []
        self.n_shown = 0  # characters
        self.decoder = None
        try:
            tokenizer.decode_bytes([])
            self.decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        except InputError:
            pass  # not byte-level: everything is decoded again, and what is new is returned

    def push(self, token: int) -> str:
        """Return the text that this token has completed; "" while a character is incomplete."""
        if token in self.tokenizer.control_ids:
            return ""
        if self.decoder is not None:
            return self.decoder.decode(self.tokenizer.decode_bytes([token]))
        self.ids.append(token)
        text = self.tokenizer.decode(self.ids, behind=self.behind)
        return "" if text.endswith(HALF) else self._new_part(text)

    def rest(self) -> str:
        """Return the rest of the text, at the end. Bytes that form no character are shown as
        U+FFFD."""
        if self.decoder is not None:
            return self.decoder.decode(b"", final=True)
        return self._new_part(self.tokenizer.decode(self.ids, behind=self.behind))

    def _new_part(self, text: str) -> str:
        new, self.n_shown = text[self.n_shown :], len(text)
        return new


class StreamedPiece(NamedTuple):
    """New text for the prompt with this number, which may be empty. The last piece has `stop`."""

    number: int
    text: str
    n_tokens: int
    """The number of new tokens of this prompt so far."""
    stop: StopReason | None


def stream_texts(
    model: GenerativeModel,
    tokenizer: Tokenizer,
    rows: Sequence[list[int]],
    config: DecodeConfig,
    choice: Choice = Choice(temperature=0),  # noqa: B008 (frozen)
    *,
    seeds: int | Sequence[int] = 0,
    constraint: Constraint | None = None,
    max_rows: int = MAX_ROWS,
) -> Iterator[StreamedPiece]:
    """Yield the texts that follow the prompts (or translate the sources), side by side, with a
    piece for each token. Decoding stops when the caller stops reading."""
    continues = model.config.family == "decoder"
    streams = [TextStream(tokenizer, row if continues else ()) for row in rows]
    n_tokens = [0] * len(rows)
    choose = chooser(choice, seeds)
    events = decode_tokens(model, rows, config, choose, constraint=constraint, max_rows=max_rows)
    for number, token, _, stop in events:
        text = ""
        if token is not None:
            n_tokens[number] += 1
            text = streams[number].push(token)
        if stop is not None:
            text += streams[number].rest()
        yield StreamedPiece(number, text, n_tokens[number], stop)


def stream_text(
    model: GenerativeModel,
    tokenizer: Tokenizer,
    ids: list[int],
    config: DecodeConfig,
    choice: Choice = Choice(temperature=0),  # noqa: B008 (frozen)
    *,
    seed: int = 0,
    constraint: Constraint | None = None,
) -> Iterator[str]:
    """Yield the text that follows a prompt (or translates a source), piece by piece."""
    pieces = stream_texts(
        model, tokenizer, [ids], config, choice, seeds=[seed], constraint=constraint
    )
    return (piece.text for piece in pieces if piece.text)
