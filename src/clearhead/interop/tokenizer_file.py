"""`tokenizer.json`, as a file that may come from a stranger: opened, held against the model, and
copied. What it means is the text room's business."""

from pathlib import Path

from tokenizers import Tokenizer

from clearhead.config import ModelConfig
from clearhead.errors import FolderError
from clearhead.interop.folders import has_file, read_text

TOKENIZER = "tokenizer.json"


def has_tokenizer(folder: Path) -> bool:
    return has_file(folder, TOKENIZER)


def open_tokenizer(folder: Path) -> Tokenizer:
    """As the text room reads it: no text can spell a control token."""
    try:
        tokenizer = Tokenizer.from_str(read_text(folder, TOKENIZER))
    except FolderError:
        raise
    except Exception as error:  # the library raises nothing narrower
        raise FolderError(f"{folder / TOKENIZER} is not a tokenizer ({error}); damaged?") from None
    tokenizer.encode_special_tokens = True
    return tokenizer


def copy_tokenizer(source: Path, target: Path, config: ModelConfig) -> None:
    """Byte for byte, if there is one and the model knows all its tokens."""
    if not has_tokenizer(source):
        return
    n_tokens = open_tokenizer(source).get_vocab_size(with_added_tokens=True)
    if n_tokens > config.vocab_size:
        raise FolderError(
            f"{source / TOKENIZER} has {n_tokens} tokens and the model vocab_size="
            f"{config.vocab_size}; they do not belong together"
        )
    text = read_text(source, TOKENIZER)
    (target / TOKENIZER).write_text(text, encoding="utf-8", newline="")
