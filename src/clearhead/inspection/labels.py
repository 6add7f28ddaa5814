"""Tokens as they can be seen."""

from clearhead.errors import InputError
from clearhead.text.tokenizer import Tokenizer

SIGNS = {code: chr(0x2400 + code) for code in range(0x20)} | {0x7F: "\u2421"}
SIGNS |= {code: f"⟨{code:02x}⟩" for code in range(0x80, 0xA0)}
SIGNS |= {ord(" "): "␣", ord("\n"): "⏎", ord("\t"): "⇥"}
"""Unicode has a picture of every old control character; a terminal or an SVG would obey the
characters themselves, or break."""


def label_of(token: int, tokenizer: Tokenizer) -> str:
    """As it can be seen; bytes that are not a whole character are written ⟨e9 83⟩."""
    if token >= tokenizer.vocab_size:
        return f"⟨{token}⟩"  # a row of the table that no token has
    label = token_label(token, tokenizer)
    if "\ufffd" not in label:
        return label
    try:
        return f"⟨{tokenizer.decode_bytes([token]).hex(' ')}⟩"
    except InputError:
        return label


def token_label(token: int, tokenizer: Tokenizer) -> str:
    """A token in visible characters: spaces, line ends and parts of a character have signs."""
    return tokenizer.decode([token], show_control=True).translate(SIGNS)
