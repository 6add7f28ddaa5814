"""`tokenizer.json` as untrusted input: opened, checked against the model, and copied. The package
`text` interprets it."""

from pathlib import Path

from tokenizers import Tokenizer

from clearhead.config import ModelConfig
from clearhead.errors import ClearheadError, FolderError
from clearhead.interop.folders import has_file, read_text
from clearhead.text.tokenizer import panics_are_errors

TOKENIZER = "tokenizer.json"
SOURCE, TARGET = "tokenizer.source.json", "tokenizer.target.json"
"""The files instead, where each side has its own vocabulary."""


def has_tokenizer(folder: Path) -> bool:
    """Whether the folder holds a `tokenizer.json`."""
    return has_file(folder, TOKENIZER)


def open_tokenizer(folder: Path, name: str = TOKENIZER) -> Tokenizer:
    """The tokenizer of a model folder: no text can spell a control token."""
    try:
        with panics_are_errors():
            tokenizer = Tokenizer.from_str(read_text(folder, name))
    except ClearheadError:
        raise
    except Exception as error:  # the library raises nothing narrower
        raise FolderError(f"{folder / name} is not a tokenizer ({error}); damaged?") from None
    tokenizer.encode_special_tokens = True
    return tokenizer


def copy_tokenizer(source: Path, target: Path, config: ModelConfig) -> None:
    """Copies the tokenizer files byte for byte, if the model has all their tokens."""
    sizes = {TOKENIZER: config.vocab_size, SOURCE: config.vocab_size}
    for name, size in {**sizes, TARGET: config.output_vocab_size}.items():
        if not has_file(source, name):
            continue
        n_tokens = open_tokenizer(source, name).get_vocab_size(with_added_tokens=True)
        if n_tokens > size:
            raise FolderError(
                f"{source / name} has {n_tokens} tokens and the model vocab_size={size}; "
                "they do not belong together"
            )
        (target / name).write_text(read_text(source, name), encoding="utf-8", newline="")
