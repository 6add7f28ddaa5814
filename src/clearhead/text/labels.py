"""The labels of a classifier as tokens: what a masked language model predicts in place of the mask
(Schick and Schütze 2021 call it a verbalizer)."""

from collections.abc import Sequence

from clearhead.config.data import label_token
from clearhead.errors import DataError
from clearhead.text.tokenizer import Tokenizer


def label_ids(tokenizer: Tokenizer, labels: Sequence[str]) -> dict[str, int]:
    """The token of each label: one that was added for it, or else the word after a space, as in a
    sentence, or else the word without a space."""
    found = {label: _label_id(tokenizer, label) for label in labels}
    if len(set(found.values())) != len(found):
        raise DataError(f"data.labels: two of {list(found)} are the same token; rename one")
    return found


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
        f"data.labels: {label!r} must be one token, and this tokenizer makes it "
        f"{len(tokens)}: {', '.join(map(repr, tokens))}; name a shorter or more frequent word, or "
        "train a new tokenizer, which is given a token for each label"
    )
