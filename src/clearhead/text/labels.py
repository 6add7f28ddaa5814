"""Turns the labels of a classifier into numbers: those of its classes, or the tokens that a masked
language model predicts in place of the mask (Schick and Schütze 2021 call this a verbalizer)."""

from collections.abc import Sequence

from clearhead.config.data import LabelAs, label_token
from clearhead.errors import DataError
from clearhead.text.tokenizer import Tokenizer


def label_ids(
    tokenizer: Tokenizer, labels: Sequence[str], label_as: LabelAs = "token"
) -> dict[str, int]:
    """Return the number of each label. For a class, this is its place among the labels. For a
    token, it is the token that was added for the label, or else the word after a space, as in a
    sentence, or else the word without a space."""
    if label_as == "class":
        return {label: number for number, label in enumerate(labels)}
    ids = {label: _label_id(tokenizer, label) for label in labels}
    if len(set(ids.values())) != len(ids):
        raise DataError(f"data.labels: two of {list(ids)} are the same token; rename one")
    return ids


def _label_id(tokenizer: Tokenizer, label: str) -> int:
    for index, token in tokenizer.library.get_added_tokens_decoder().items():
        if token.content == label_token(label):
            return index
    spellings = tokenizer.encode_batch([f" {label}", label])
    for ids in spellings:
        if len(ids) == 1:
            return ids[0]
    tokens = [tokenizer.decode([index]) for index in spellings[0]]
    raise DataError(
        f"data.labels: {label!r} must be one token with data.label_as='token', but this tokenizer "
        f"makes {len(tokens)} of it: {', '.join(map(repr, tokens))}; set data.label_as='class', "
        "which takes any label, or name a shorter or more frequent word"
    )
