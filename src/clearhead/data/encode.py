"""Text to tokens in several processes, in order, with bounded memory. It does not import torch, so
that a worker starts quickly."""

import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from clearhead.data.token_files import Integers, TokenArray, token_dtype
from clearhead.environment import one_tokenizer_thread
from clearhead.errors import ClearheadError
from clearhead.localise.menu_keys import training_pair
from clearhead.processes import starting_processes
from clearhead.text.pieces import encode_pieces
from clearhead.text.tokenizer import Tokenizer, tokenizer_from_json

WAITING_PER_PROCESS = 2  # chunks under way: enough to keep a process busy while its result travels


class Encoded(NamedTuple):
    """Documents of one side: all their tokens in a row, each document ended by <eos>."""

    tokens: TokenArray
    lengths: Integers


class HasTexts(Protocol):
    """Anything that holds the texts of documents by side."""

    @property
    def texts(self) -> tuple[list[str], ...]:
        """The documents' texts, by side."""
        ...


SomeChunk = TypeVar("SomeChunk", bound=HasTexts)


def encode(tokenizer: Tokenizer, texts: list[str]) -> Encoded:
    """The tokens of some texts, each ended by <eos>."""
    return _ended(tokenizer, tokenizer.encode_batch(texts))


def encode_sides(tokenizers: list[Tokenizer], texts: tuple[list[str], ...]) -> list[Encoded]:
    """The tokens of each side. Spans that both sides of a pair have become reserved tokens, if the
    tokenizers have them."""
    most = min(len(tokenizer.placeholder_ids) for tokenizer in tokenizers)
    if len(tokenizers) != 2 or not most:
        return [encode(*side) for side in zip(tokenizers, texts)]
    masked = [training_pair(source, target, most) for source, target in zip(texts[0], texts[1])]
    return [
        _ended(tokenizer, encode_pieces(tokenizer, side))
        for tokenizer, side in zip(tokenizers, zip(*masked))
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
    """One number for each label, without <eos>."""
    tokens = np.array([ids[label] for label in labels], np.uint32)
    return Encoded(tokens, np.ones(len(labels), np.int64))


def encode_in_order(
    chunks: Iterable[SomeChunk], tokenizers: list[Tokenizer], processes: int
) -> Iterator[tuple[SomeChunk, list[Encoded]]]:
    """Each chunk with the tokens of its first sides, one for each tokenizer. With one process the
    work is done here, on as many threads as the library takes."""
    if processes == 1:
        for chunk in chunks:
            yield chunk, encode_sides(tokenizers, chunk.texts)
        return
    # Fresh processes: a fork would copy the library's threads in an unknown state.
    with (
        starting_processes(),
        ProcessPoolExecutor(
            processes,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start_worker,
            initargs=(
                [(tokenizer.to_json(), tokenizer.special_tokens) for tokenizer in tokenizers],
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
                "command again to continue, with fewer processes: processes=1"
            ) from None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


_tokenizers: list[Tokenizer] = []  # a worker's own, set once when it starts


def _start_worker(described: list[tuple[str, tuple[str, ...]]]) -> None:
    one_tokenizer_thread()
    _tokenizers[:] = [tokenizer_from_json(text, special) for text, special in described]
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Ends the worker when its parent is killed; it would wait for work forever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _encode_here(texts: tuple[list[str], ...]) -> list[Encoded]:
    return encode_sides(_tokenizers, texts)
