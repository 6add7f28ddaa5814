"""Turns text into tokens in several processes, in order and with bounded memory. This module does
not import torch, so that workers start quickly."""

import multiprocessing
import os
import threading
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from clearhead.data.token_files import Integers, TokenArray, token_dtype
from clearhead.environment import one_tokenizer_thread
from clearhead.errors import ClearheadError, setting
from clearhead.localise.glossary import Glossary, PiecesWithTerms, terms_of_both
from clearhead.localise.masking import Pieces
from clearhead.localise.menu_keys import training_pair
from clearhead.processes import starting_processes
from clearhead.text.pieces import encode_pieces
from clearhead.text.tokenizer import Tokenizer, tokenizer_from_json

WAITING_PER_PROCESS = 2  # chunks under way: enough to keep a process busy while its result travels


class Encoded(NamedTuple):
    """The documents of one side: all their tokens in a row, with <eos> at the end of each
    document."""

    tokens: TokenArray
    lengths: Integers


class HasTexts(Protocol):
    """Anything that holds the texts of documents by side."""

    @property
    def texts(self) -> tuple[list[str], ...]:
        """The texts of the documents, by side."""
        ...


SomeChunk = TypeVar("SomeChunk", bound=HasTexts)


def encode(tokenizer: Tokenizer, texts: list[str]) -> Encoded:
    """Encode texts. Each encoded text ends with <eos>."""
    return _ended(tokenizer, tokenizer.encode_batch(texts))


class TaughtTerms(NamedTuple):
    """A glossary that a model learns to follow."""

    glossary: Glossary
    share: float
    """The share of the pairs with terms whose source names the terms."""

    def annotated(self, source: Pieces, target: str) -> PiecesWithTerms:
        """Return the pieces of a source. In some of the pairs, the terms that the target has as
        well are inserted; in the other pairs, the source is unchanged. The text alone decides
        between the two."""
        words = "".join(piece for piece in source if isinstance(piece, str))
        drawn = zlib.crc32(f"{words}\t{target}".encode(errors="replace")) / 2**32
        return source if drawn >= self.share else terms_of_both(self.glossary, source, target)


def encode_sides(
    tokenizers: list[Tokenizer], texts: tuple[list[str], ...], taught: TaughtTerms | None = None
) -> list[Encoded]:
    """Encode each side. If the tokenizers have reserved tokens, spans that source and target of a
    pair have in common become such tokens, and the terms to teach are put between them."""
    most = min(len(tokenizer.placeholder_ids) for tokenizer in tokenizers)
    if len(tokenizers) != 2 or not (most or taught):
        return [encode(*side) for side in zip(tokenizers, texts)]
    pairs = list(zip(texts[0], texts[1]))
    masked = [
        training_pair(source, target, most) if most else ((source,), (target,))
        for source, target in pairs
    ]
    sources = [source for source, _ in masked]
    if taught:
        sources = [taught.annotated(own, target) for own, (_, target) in zip(sources, pairs)]
    sides = (sources, [target for _, target in masked])
    return [
        _ended(tokenizer, encode_pieces(tokenizer, side))
        for tokenizer, side in zip(tokenizers, sides)
    ]


def _ended(tokenizer: Tokenizer, rows: list[list[int]]) -> Encoded:
    lengths = np.array([len(row) + 1 for row in rows], np.int64)
    tokens = np.empty(int(lengths.sum()), token_dtype(tokenizer.vocab_size))
    end = 0
    for row, length in zip(rows, lengths.tolist()):
        tokens[end : end + length - 1] = row
        end += length
        tokens[end - 1] = tokenizer.eos_id
    return Encoded(tokens, lengths)


def encode_labels(ids: dict[str, int], labels: list[str]) -> Encoded:
    """Encode each label as one number, without <eos>."""
    tokens = np.array([ids[label] for label in labels], np.uint32)
    return Encoded(tokens, np.ones(len(labels), np.int64))


def encode_in_order(
    chunks: Iterable[SomeChunk],
    tokenizers: list[Tokenizer],
    processes: int,
    taught: TaughtTerms | None = None,
) -> Iterator[tuple[SomeChunk, list[Encoded]]]:
    """Yield each chunk with the tokens of its first sides, one for each tokenizer. With one
    process, this process does the work, on as many threads as the library uses."""
    if processes == 1:
        for chunk in chunks:
            yield chunk, encode_sides(tokenizers, chunk.texts, taught)
        return
    # The processes are new ones, as a fork would copy the library's threads in an unknown state.
    with (
        starting_processes(),
        ProcessPoolExecutor(
            processes,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start_worker,
            initargs=(
                [(tokenizer.to_json(), tokenizer.special_tokens) for tokenizer in tokenizers],
                taught and (taught.glossary.terms, taught.share),
            ),
        ) as pool,
    ):
        under_way: deque[tuple[SomeChunk, Future[list[Encoded]]]] = deque()
        try:
            for chunk in chunks:
                under_way.append((chunk, pool.submit(_encode_here, chunk.texts)))
                if len(under_way) >= WAITING_PER_PROCESS * processes:
                    first, future = under_way.popleft()
                    yield first, future.result()
            for chunk, future in under_way:
                yield chunk, future.result()
        except BrokenProcessPool:
            raise ClearheadError(
                "a process that encoded text was killed, perhaps for lack of memory; run the same "
                f"command again to continue, with fewer processes: {setting('processes', 1)}"
            ) from None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


_tokenizers: list[Tokenizer] = []  # each worker has its own; it is set once when the worker starts
_taught: list[TaughtTerms] = []


def _start_worker(
    described: list[tuple[str, tuple[str, ...]]], taught: tuple[dict[str, str], float] | None
) -> None:
    one_tokenizer_thread()
    _taught[:] = [] if taught is None else [TaughtTerms(Glossary(taught[0]), taught[1])]
    _tokenizers[:] = [tokenizer_from_json(text, special) for text, special in described]
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End the worker when its parent is killed. Otherwise, it would wait for work forever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _encode_here(texts: tuple[list[str], ...]) -> list[Encoded]:
    return encode_sides(_tokenizers, texts, *_taught)
