"""Trains new tokenizers on text. The same text in the same order gives the same file, byte for
byte."""

from collections import Counter
from collections.abc import Iterable, Sequence

from tokenizers import Tokenizer as LibraryTokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from clearhead.errors import DataError
from clearhead.text.tokenizer import BOS, EOS, PAD, Tokenizer, byte_alphabet

NORMALIZERS = {"nfc": normalizers.NFC, "nfkc": normalizers.NFKC}


def train_bpe(
    texts: Iterable[str],
    vocab_size: int | None,
    *,
    special_tokens: Sequence[str] = (PAD, BOS, EOS),
    normalize: str = "none",
) -> Tokenizer:
    """Train a byte-level byte-pair encoding. The special tokens take the ids 0, 1, 2…; then come
    the 256 bytes, and then the merges, in the order in which they were learnt."""
    assert vocab_size is not None
    library = LibraryTokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    library.decoder = decoders.ByteLevel()
    _set_normalizer(library, normalize)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(special_tokens),
        initial_alphabet=sorted(byte_alphabet().values()),
        show_progress=False,
    )
    library.train_from_iterator(texts, trainer)
    return Tokenizer(library, special_tokens)


def train_characters(
    texts: Iterable[str],
    vocab_size: int | None = None,
    *,
    special_tokens: Sequence[str] = (PAD, BOS, EOS),
    normalize: str = "none",
) -> Tokenizer:
    """Make a tokenizer with one token per character, for teaching. The most frequent characters get
    their own tokens (all of them if `vocab_size` is None). Any other character is spelt by its
    UTF-8 bytes, so that no character is unknown."""
    normalizer = NORMALIZERS[normalize]() if normalize != "none" else None
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text if normalizer is None else normalizer.normalize_str(text))
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    most = None if vocab_size is None else vocab_size - len(special_tokens) - len(byte_tokens)
    # Equal counts are ordered by code point; a Counter keeps the order in which it first saw the
    # characters.
    frequent = sorted(counts, key=lambda character: (-counts[character], character))[:most]
    clash = {token for token in special_tokens if len(token) == 1} & set(frequent)
    if clash:
        raise DataError(f"the special token {clash.pop()!r} is a character of the text; rename it")
    tokens = [*special_tokens, *byte_tokens, *sorted(frequent)]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    library = LibraryTokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True))
    library.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    _set_normalizer(library, normalize)
    library.add_special_tokens(list(special_tokens))
    return Tokenizer(library, special_tokens)


def _set_normalizer(library: LibraryTokenizer, normalize: str) -> None:
    if normalize != "none":
        library.normalizer = NORMALIZERS[normalize]()
