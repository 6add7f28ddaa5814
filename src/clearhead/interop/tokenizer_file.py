"""Handles `tokenizer.json` as untrusted input: opens it, checks it against the model, and copies
it. The package `text` interprets it."""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from tokenizers import Tokenizer

from clearhead.config import ModelConfig
from clearhead.errors import ClearheadError, FolderError
from clearhead.interop.folders import has_file, read_text
from clearhead.text.tokenizer import library_tokenizer, panics_are_errors

TOKENIZER = "tokenizer.json"
SOURCE, TARGET = "tokenizer.source.json", "tokenizer.target.json"
"""The files that replace it if source and target have separate vocabularies."""


def has_tokenizer(folder: Path) -> bool:
    """Tell whether the folder contains a `tokenizer.json`."""
    return has_file(folder, TOKENIZER)


def open_tokenizer(folder: Path, name: str = TOKENIZER) -> Tokenizer:
    """Open the tokenizer of a model folder. No text can spell a control token."""
    try:
        tokenizer = library_tokenizer(read_text(folder, name))
    except ClearheadError:
        raise
    except Exception as error:  # the library raises no narrower type
        raise FolderError(f"{folder / name} is not a tokenizer ({error}); is it damaged?") from None
    tokenizer.encode_special_tokens = True
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def copy_tokenizer(source: Path, target: Path, config: ModelConfig) -> None:
    """Copy the tokenizer files if the model has all their tokens. The copies are byte-identical,
    except that the settings for padding and truncation are removed: no tokenizer in clearhead pads
    or truncates."""
    sizes = {TOKENIZER: config.vocab_size, SOURCE: config.vocab_size}
    for name, size in {**sizes, TARGET: config.output_vocab_size}.items():
        if not has_file(source, name):
            continue
        vocabulary = open_tokenizer(source, name).get_vocab(with_added_tokens=True)
        n_tokens = 1 + max(vocabulary.values(), default=-1)
        if n_tokens > size:
            raise FolderError(
                f"{source / name} has {n_tokens} tokens and the model vocab_size={size}; "
                "they do not belong together"
            )
        text = read_text(source, name)
        content = json.loads(text)
        if content.get("padding") or content.get("truncation"):
            content |= {"padding": None, "truncation": None}
            text = json.dumps(content, ensure_ascii=False)
        (target / name).write_text(text, encoding="utf-8", newline="")


def added_by_itself(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Return the ids that a tokenizer adds before and after every text in other software. clearhead
    adds start and end tokens according to the model's task instead."""
    for text in _short_texts(tokenizer):
        try:
            with panics_are_errors():
                plain = tokenizer.encode(text, add_special_tokens=False).ids
                whole = tokenizer.encode(text).ids
        except Exception:  # an unknown letter; the library raises no narrower type
            continue
        places = range(len(whole) - len(plain) + 1)
        at = next((i for i in places if whole[i : i + len(plain)] == plain), len(whole))
        before, behind = whole[:at], whole[at + len(plain) :]
        # otherwise, it would be unclear which of them is the text's own
        if plain and not {*plain} & {*before, *behind}:
            return before, behind
    return [], []


def _short_texts(tokenizer: Tokenizer) -> Iterator[str]:
    """Yield a letter that most tokenizers know; for other tokenizers, yield tokens of their own."""
    yield "a"
    for index in islice(tokenizer.get_vocab(with_added_tokens=False).values(), 100):
        yield tokenizer.decode([index])
