"""Text while it is decoded: each piece is whole characters, and the pieces make the whole text."""

import codecs
from collections.abc import Iterator

from clearhead.config import Choice, DecodeConfig
from clearhead.decoding.cached import GenerativeModel
from clearhead.decoding.constraints import Constraint
from clearhead.decoding.generation import decode_tokens
from clearhead.decoding.sampling import chooser
from clearhead.errors import InputError
from clearhead.text.tokenizer import Tokenizer

HALF = "\ufffd"  # what a decoder puts where a character is not complete


class TextStream:
    """Tokens in, text out, and never half a character.

    A token of a byte-level vocabulary may hold part of a character: it is held until the rest has
    arrived. The pieces, and what `rest` returns at the end, make `tokenizer.decode` of all tokens.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.ids: list[int] = []
        self.n_shown = 0  # characters
        self.decoder = None
        try:
            tokenizer.decode_bytes([])
            self.decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        except InputError:
            pass  # not byte-level: everything is decoded again, and what is new is returned

    def push(self, token: int) -> str:
        """The text that this token has completed; "" while a character is not whole."""
        if token in self.tokenizer.control_ids:
            return ""
        if self.decoder is not None:
            return self.decoder.decode(self.tokenizer.decode_bytes([token]))
        self.ids.append(token)
        text = self.tokenizer.decode(self.ids)
        return "" if text.endswith(HALF) else self._new_part(text)

    def rest(self) -> str:
        """What is left at the end: bytes that no character can be made of are shown as U+FFFD."""
        if self.decoder is not None:
            return self.decoder.decode(b"", final=True)
        return self._new_part(self.tokenizer.decode(self.ids))

    def _new_part(self, text: str) -> str:
        new, self.n_shown = text[self.n_shown :], len(text)
        return new


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
    """The text that follows a prompt (or translates a source), piece by piece."""
    stream = TextStream(tokenizer)
    events = decode_tokens(model, [ids], config, chooser(choice, [seed]), constraint=constraint)
    for event in events:
        if event.token is not None and (piece := stream.push(event.token)):
            yield piece
    if piece := stream.rest():
        yield piece
