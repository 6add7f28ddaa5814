"""Shows tokens in visible characters."""

from clearhead.errors import InputError
from clearhead.text.tokenizer import Tokenizer

SIGNS = {code: chr(0x2400 + code) for code in range(0x20)} | {0x7F: "\u2421"}
SIGNS |= {code: f"⟨{code:02x}⟩" for code in range(0x80, 0xA0)}
SIGNS |= {ord(" "): "␣", ord("\n"): "⏎", ord("\t"): "⇥"}
"""The visible picture of every old control character. A terminal or an SVG would obey the
characters themselves, or break."""


def label_of(token: int, tokenizer: Tokenizer) -> str:
    """Return a token in visible characters. Spaces and line ends have signs, and bytes that are not
    a whole character are written ⟨e9 83⟩."""
    if token >= tokenizer.vocab_size:
        return f"⟨{token}⟩"  # a row of the table without a token
    label = tokenizer.decode([token], show_control=True).translate(SIGNS)
    spelt = tokenizer.library.id_to_token(token) or ""
    if spelt.startswith("▁") and not label.startswith("␣"):
        label = f"␣{label}"  # which some decoders leave out at the beginning of a text
    if "\ufffd" not in label:
        return label
    try:
        return f"⟨{tokenizer.decode_bytes([token]).hex(' ')}⟩"
    except InputError:
        return label
