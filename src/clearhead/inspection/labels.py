"""Tokens as they can be seen."""

from clearhead.errors import InputError
from clearhead.inspection.attention import token_label
from clearhead.text.tokenizer import Tokenizer


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
