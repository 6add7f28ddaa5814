"""Text while it is written: every piece is whole characters, and the pieces make the whole text."""

import codecs
from collections.abc import Iterator

from clearhead.config import Choice, DecodeConfig
from clearhead.decoding.constraints import Allowed
from clearhead.decoding.sampling import chooser
from clearhead.decoding.writing import Model, write
from clearhead.errors import InputError
from clearhead.text.tokenizer import Tokenizer

HALF = "\ufffd"  # what a decoder puts where a character is not complete


class TextStream:
    """Tokens in, text out, and never half a character.

    A token of a byte-level vocabulary may hold part of a character: it is kept back until the rest
    has come. The pieces, and what `rest` returns at the end, make `tokenizer.decode` of all tokens.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.ids: list[int] = []
        self.told = 0  # characters
        self.decoder = None
        try:
            tokenizer.decode_bytes([])
            self.decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        except InputError:
            pass  # not byte-level: everything is decoded again, and what is new is told

    def push(self, token: int) -> str:
        """The text that this token has completed; "" while a character is not whole."""
        if token in self.tokenizer.control_ids:
            return ""
        if self.decoder is not None:
            return self.decoder.decode(self.tokenizer.decode_bytes([token]))
        self.ids.append(token)
        text = self.tokenizer.decode(self.ids)
        return "" if text.endswith(HALF) else self._tell(text)

    def rest(self) -> str:
        """What is left at the end: bytes that no character can be made of are shown as U+FFFD."""
        if self.decoder is not None:
            return self.decoder.decode(b"", final=True)
        return self._tell(self.tokenizer.decode(self.ids))

    def _tell(self, text: str) -> str:
        new, self.told = text[self.told :], len(text)
        return new


def stream_text(
    model: Model,
    tokenizer: Tokenizer,
    ids: list[int],
    config: DecodeConfig,
    choice: Choice = Choice(temperature=0),  # noqa: B008 (frozen)
    *,
    seed: int = 0,
    allowed: Allowed | None = None,
) -> Iterator[str]:
    """The text that follows a prompt (or translates a source), piece by piece."""
    stream = TextStream(tokenizer)
    for written in write(model, [ids], config, chooser(choice, [seed]), allowed=allowed):
        if written.token is not None and (piece := stream.push(written.token)):
            yield piece
    if piece := stream.rest():
        yield piece
