"""Measures the perplexity of a language model per token, byte, character and word.

Perplexity per token compares models with the same tokenizer. Bytes, characters and words (separated
by spaces) are the same for every tokenizer, so these figures compare any models."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from clearhead.decoding.scoring import score
from clearhead.errors import InputError, setting
from clearhead.models import CausalLM
from clearhead.text.tokenizer import Tokenizer

LARGEST = 709.0  # e to this power is still a float
LARGEST_SHOWN = 1e6
"""A higher perplexity only says that the model does not know the text."""
LONGEST_MEAN_WORD = 20
"""The longest mean word, in characters. If words are longer on average, the text does not separate
words by spaces (as in Chinese or Japanese), and its words cannot be counted."""


def exponential(nats: float) -> float:
    """Return the exponential, or infinity where Python would raise: a model may find a text
    arbitrarily unlikely."""
    return math.exp(nats) if nats < LARGEST else math.inf


@dataclass(frozen=True, kw_only=True)
class Perplexity:
    """The summed loss of a text, and the counts by which it can be divided."""

    nats: float
    """-log p of all scored tokens, in nats."""
    n_tokens: int
    n_bytes: int
    n_characters: int
    n_words: int

    @property
    def per_token(self) -> float:
        """Perplexity per token, which depends on the tokenizer."""
        return exponential(self.nats / self.n_tokens)

    @property
    def per_byte(self) -> float:
        """Perplexity per byte of UTF-8, which is comparable across tokenizers."""
        return exponential(self.nats / self.n_bytes)

    @property
    def per_character(self) -> float:
        """Perplexity per character, which is comparable across tokenizers."""
        return exponential(self.nats / self.n_characters)

    @property
    def per_word(self) -> float | None:
        """Perplexity per word; None for a text without spaces between words, or if no word ends in
        a scored token."""
        if self.n_words < 1 or self.n_characters > LONGEST_MEAN_WORD * self.n_words:
            return None
        return exponential(self.nats / self.n_words)

    @property
    def bits_per_byte(self) -> float:
        """Loss in bits per byte, which is comparable across tokenizers."""
        return self.nats / math.log(2) / self.n_bytes


def perplexity(
    model: CausalLM,
    tokenizer: Tokenizer,
    texts: Iterable[str],
    *,
    stride: int | None = None,
    bos_id: int | None = None,
    eos_id: int | None = None,
    joined: bool = False,
) -> Perplexity:
    """Compute the perplexity of all texts together. Each text starts with `bos_id` and ends with
    `eos_id`, which is scored like any token and counts as one byte, the line break for which it
    stands. Without `bos_id`, the first token is not scored, and its bytes, its characters and any
    word that ends in it do not count. If `joined`, the texts follow one another, as in a stream on
    which a language model is trained, and each text is read after those before it.

    A text that is longer than the model's window is read in overlapping windows. Each window starts
    `stride` tokens after the last one (by default half a window) and scores the tokens that are new
    in it, so every token is scored once, with at least window - stride tokens before it."""
    window = model.config.max_length
    stride = max(1, window // 2) if stride is None else stride
    if not 1 <= stride <= window:
        raise InputError(
            f"{setting('stride', stride)} must be between 1 and the window of {window} tokens; "
            "a larger one would leave tokens out"
        )
    n_ends = 0 if eos_id is None else 1
    encoded = _encoded(tokenizer, texts, bos_id, eos_id)
    n_bytes = sum(len(text.encode("utf-8")) + n_ends for text, _ in encoded)
    n_characters = sum(len(text) + n_ends for text, _ in encoded)
    n_words = sum(len(text.split()) for text, _ in encoded)
    contexts: list[Sequence[int]] = []
    targets: list[Sequence[int]] = []
    for text, ids in _joined(encoded) if joined else encoded:
        # The first token is not scored, so its characters are not counted (if they are complete).
        first_text = tokenizer.decode(ids[:1]).rstrip("\ufffd")
        n_bytes -= len(first_text.encode("utf-8"))
        n_characters -= len(first_text)
        n_words -= _words_that_end(first_text, text[len(first_text) :])
        for start, first, last in windows(len(ids), window, stride):
            contexts.append(ids[start:first])
            targets.append(ids[first:last])
    nats, n_tokens = 0.0, 0
    for log_probs in score(model, contexts, targets):
        nats -= math.fsum(log_probs)
        n_tokens += len(log_probs)
    if n_tokens == 0:
        raise InputError("there is no token to score; give a text of at least two tokens")
    return Perplexity(
        nats=nats, n_tokens=n_tokens, n_bytes=n_bytes, n_characters=n_characters, n_words=n_words
    )


def _encoded(
    tokenizer: Tokenizer, texts: Iterable[str], bos_id: int | None, eos_id: int | None
) -> list[tuple[str, list[int]]]:
    """The texts that have tokens, with their tokens."""
    starts = [] if bos_id is None else [bos_id]
    ends = [] if eos_id is None else [eos_id]
    encoded = [(text, [*starts, *tokenizer.encode(text), *ends]) for text in texts]
    return [(text, ids) for text, ids in encoded if ids]


def _joined(encoded: Sequence[tuple[str, list[int]]]) -> list[tuple[str, list[int]]]:
    """One row of all tokens, with the text that it begins with."""
    return [(encoded[0][0], [token for _, ids in encoded for token in ids])] if encoded else []


def _words_that_end(text: str, rest: str) -> int:
    """Count the words that end in `text`. `rest` follows the text: its last word may end only
    there."""
    continues = text[-1:].strip() and rest[:1].strip()
    return len(text.split()) - (1 if continues else 0)


def windows(n_tokens: int, window: int, stride: int) -> Iterable[tuple[int, int, int]]:
    """Yield (start, first, last): tokens first…last - 1 are scored, given start…first - 1. A window
    reads `window` tokens, and so scores one more than it reads after its first."""
    first = 1
    while first < n_tokens:
        last = min(n_tokens, first + (window if first == 1 else stride))
        yield max(0, last - 1 - window), first, last
        first = last
