"""Layouts: how token files hold samples, and how samples form batches. There are pairs, pairs in
one row, texts with a label, a stream, a masked stream, and packed documents.

Each layout says how many samples there are and how many of them form a window; cuts the samples of
a window into global batches; and turns rows of a batch into tensors."""

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from clearhead.config.batches import BatchConfig
from clearhead.data.batches import (
    IGNORED,
    NO_DOCUMENT,
    Batch,
    ClassBatch,
    Corruption,
    JoinedBatch,
    LabelledBatch,
    MaskedBatch,
    PairBatch,
    Renumbering,
    SampleIds,
    TokenBatch,
    class_batch,
    labelled_batch,
    pad_rows,
)
from clearhead.data.order import derive_key, permute
from clearhead.data.token_files import Integers, TokenArray, TokenStore
from clearhead.text.tokenizer import Tokenizer


class DocumentPiece(NamedTuple):
    """The tokens start…stop-1 of a sample."""

    sample: int
    start: int
    stop: int


BatchRow = tuple[DocumentPiece, ...]
Item = TypeVar("Item")


class BatchLayout(Protocol):
    """The interface that the loader needs; the classes below implement it."""

    n_samples: int
    window: int

    def cut(self, samples: Integers, key: int) -> list[list[BatchRow]]:
        """Cut one window into global batches. `key` decides all random choices."""
        ...

    def collate(self, rows: Sequence[BatchRow], key: int) -> Batch:
        """Make tensors of some rows. `key` belongs to the epoch."""
        ...


class _Pairs:
    """What the two layouts of pairs share: they read both sides, and renumber their spans."""

    def __init__(
        self,
        source: TokenStore,
        target: TokenStore,
        config: BatchConfig,
        tokenizers: dict[str, Tokenizer],
    ) -> None:
        self.source, self.target, self.budget = source, target, config.batch_tokens
        self.n_samples, self.window = source.n_documents, config.window
        self.pad_id, self.bos_id = tokenizers["target"].pad_id, tokenizers["target"].bos_id
        self.renumber = Renumbering(
            tokenizers["source"].placeholder_ids, tokenizers["target"].placeholder_ids
        )

    def pairs(self, samples: SampleIds, key: int) -> list[list[NDArray[np.integer]]]:
        """Return the source and target of each sample, with the numbers that its spans have in this
        epoch."""
        numbers = np.array(samples, np.int64).reshape(-1)
        sides = zip(self.source.documents(numbers), self.target.documents(numbers))
        if not self.renumber.n:
            return [[*pair] for pair in sides]
        keys = [derive_key(key, "placeholders", number) for number in numbers.tolist()]
        return [self.renumber(*pair, own) for pair, own in zip(sides, keys)]


class PairLayout(_Pairs):
    """Groups pairs whose sources and targets have similar lengths, as many as the budget allows."""

    def cut(self, samples: Integers, key: int) -> list[list[BatchRow]]:
        source, target = self.source.lengths(samples), self.target.lengths(samples)
        # The budget counts the longer side, so pairs are sorted by it first. Among pairs with an
        # equal longer side, the other side ascends; at the next length it descends, and so on.
        # Neighbours thus have similar lengths everywhere.
        longer, difference = np.maximum(source, target), target - source
        turn = np.where(longer % 2, -difference, difference)
        order = np.lexsort((samples, turn, longer))
        return _shuffled(_within(self.budget, samples[order], longer[order]), key)

    def collate(self, rows: Sequence[BatchRow], key: int) -> PairBatch:
        samples = tuple((row[0].sample,) for row in rows)
        pairs = self.pairs(samples, key)
        targets = [target for _, target in pairs]
        return PairBatch(
            source=pad_rows([source for source, _ in pairs], self.pad_id),
            target_input=pad_rows(
                [_shifted(target, self.bos_id) for target in targets], self.pad_id
            ),
            target_output=pad_rows(targets, self.pad_id),
            samples=samples,
        )


class JoinedLayout(_Pairs):
    """Puts source and target into one row, for a decoder; rows of similar length share a batch."""

    def cut(self, samples: Integers, key: int) -> list[list[BatchRow]]:
        lengths = self.source.lengths(samples) + self.target.lengths(samples)
        order = np.lexsort((samples, lengths))
        return _shuffled(_within(self.budget, samples[order], lengths[order]), key)

    def collate(self, rows: Sequence[BatchRow], key: int) -> JoinedBatch:
        samples = tuple((row[0].sample,) for row in rows)
        pairs = self.pairs(samples, key)
        inputs = [np.concatenate([source, _shifted(end, self.bos_id)]) for source, end in pairs]
        target_rows = [
            np.concatenate([np.full(len(source), IGNORED), end]) for source, end in pairs
        ]
        return JoinedBatch(
            inputs=pad_rows(inputs, self.pad_id),
            targets=pad_rows(target_rows, IGNORED),
            documents=pad_rows([np.zeros(len(row), np.int64) for row in inputs], NO_DOCUMENT),
            samples=samples,
        )


class _Labelled:
    """The common part of the two layouts of labelled texts: texts of similar length share a
    batch."""

    def __init__(
        self, text: TokenStore, label: TokenStore, config: BatchConfig, tokenizer: Tokenizer
    ) -> None:
        self.text, self.label, self.budget = text, label, config.batch_tokens
        self.n_samples, self.window = text.n_documents, config.window
        self.pad_id, self.bos_id = tokenizer.pad_id, tokenizer.bos_id
        self.mask_id = tokenizer.mask_id

    def cut(self, samples: Integers, key: int) -> list[list[BatchRow]]:
        lengths = self.text.lengths(samples) + 1  # the mask, or the start
        # The sort is stable, so texts of equal length keep their random order. In the order of the
        # files, neighbours would have the same label.
        order = np.argsort(lengths, kind="stable")
        return _shuffled(_within(self.budget, samples[order], lengths[order]), key)

    def read(self, rows: Sequence[BatchRow]) -> tuple[list[TokenArray], list[int], SampleIds]:
        """Read texts with their ends, the numbers of their labels, and the numbers of the
        samples."""
        samples = tuple((row[0].sample,) for row in rows)
        numbers = np.array(samples, np.int64).reshape(-1)
        labels = [int(label[0]) for label in self.label.documents(numbers)]
        return self.text.documents(numbers), labels, samples


class LabelledLayout(_Labelled):
    """Puts a mask after each text in place of its label: classification is the prediction of one
    masked token."""

    def collate(self, rows: Sequence[BatchRow], key: int) -> LabelledBatch:  # noqa: ARG002
        assert self.mask_id is not None
        texts, labels, samples = self.read(rows)
        ids = {"mask_id": self.mask_id, "pad_id": self.pad_id}
        return labelled_batch(texts, labels, **ids, samples=samples)


class ClassLayout(_Labelled):
    """Makes rows of texts, each of which begins with <bos> and has a class."""

    def collate(self, rows: Sequence[BatchRow], key: int) -> ClassBatch:  # noqa: ARG002
        texts, labels, samples = self.read(rows)
        ids = {"bos_id": self.bos_id, "pad_id": self.pad_id}
        return class_batch(texts, labels, **ids, samples=samples)


class StreamLayout:
    """Joins all documents, each ended by <eos>, and cuts them into samples of one length. The last
    tokens, which do not fill a sample, are left out."""

    def __init__(self, store: TokenStore, config: BatchConfig) -> None:
        self.store, self.length = store, config.length
        self.n_samples = max(0, store.n_tokens - 1) // config.length
        self.window = config.batch_size

    def cut(self, samples: Integers, key: int) -> list[list[BatchRow]]:  # noqa: ARG002
        return [[(DocumentPiece(sample, 0, self.length),) for sample in samples.tolist()]]

    def collate(self, rows: Sequence[BatchRow], key: int) -> TokenBatch:  # noqa: ARG002
        samples = tuple((row[0].sample,) for row in rows)
        starts = [sample * self.length for (sample,) in samples]
        # A sample has one token more than the length, because the last position has a target too.
        tokens = [self.store.read(start, start + self.length + 1) for start in starts]
        documents = [self.store.document_of(start, start + self.length) for start in starts]
        return TokenBatch(
            inputs=pad_rows([row[:-1] for row in tokens], 0, self.length),
            targets=pad_rows([row[1:] for row in tokens], 0, self.length),
            documents=pad_rows(documents, 0, self.length),
            samples=samples,
        )


class MaskedLayout:
    """Makes samples of a stream. Each epoch corrupts other tokens."""

    def __init__(self, stream: StreamLayout, corruption: Corruption) -> None:
        self.stream, self.corruption = stream, corruption
        self.n_samples, self.window = stream.n_samples, stream.window
        self.cut = stream.cut

    def collate(self, rows: Sequence[BatchRow], key: int) -> MaskedBatch:
        samples = tuple((row[0].sample,) for row in rows)
        length = self.stream.length
        corrupted = [
            self.corruption(
                self.stream.store.read(sample * length, (sample + 1) * length),
                derive_key(key, sample),
            )
            for (sample,) in samples
        ]
        return MaskedBatch(
            inputs=pad_rows([inputs for inputs, _ in corrupted], 0, length),
            targets=pad_rows([targets for _, targets in corrupted], 0, length),
            samples=samples,
        )


class PackedLayout:
    """Packs several whole documents into a row. Each token is predicted once, from its own document
    alone. A document starts with <bos>; a document that is longer than a row continues in another
    row."""

    def __init__(self, store: TokenStore, config: BatchConfig, tokenizer: Tokenizer) -> None:
        self.store, self.length, self.batch_size = store, config.length, config.batch_size
        self.n_samples, self.window = store.n_documents, config.window
        self.pad_id, self.bos_id = tokenizer.pad_id, tokenizer.bos_id

    def cut(self, samples: Integers, key: int) -> list[list[BatchRow]]:
        pieces = [
            DocumentPiece(sample, start, min(start + self.length, length))
            for sample, length in zip(samples.tolist(), self.store.lengths(samples).tolist())
            for start in range(0, length, self.length)
        ]
        rows = _shuffled(_pack(pieces, self.length), derive_key(key, "rows"))
        size = self.batch_size
        return [rows[start : start + size] for start in range(0, len(rows), size)]

    def collate(self, rows: Sequence[BatchRow], key: int) -> TokenBatch:  # noqa: ARG002
        inputs, targets, documents = [], [], []
        for row in rows:
            pairs = [self._guesses(piece) for piece in row]
            inputs.append(np.concatenate([before for before, _ in pairs]))
            targets.append(np.concatenate([after for _, after in pairs]))
            documents.append(np.repeat(np.arange(len(row)), [p.stop - p.start for p in row]))
        return TokenBatch(
            inputs=pad_rows(inputs, self.pad_id, self.length),
            targets=pad_rows(targets, IGNORED, self.length),
            documents=pad_rows(documents, NO_DOCUMENT, self.length),
            samples=tuple(tuple(piece.sample for piece in row) for row in rows),
        )

    def _guesses(self, piece: DocumentPiece) -> tuple[Integers, Integers]:
        """Return the tokens of a piece, each with the token before it."""
        if piece.start == 0:
            tokens = self.store.document(piece.sample, 0, piece.stop)
            return _shifted(tokens, self.bos_id), tokens
        tokens = self.store.document(piece.sample, piece.start - 1, piece.stop)
        return tokens[:-1], tokens[1:]


def _within(budget: int, samples: Integers, lengths: Integers) -> list[list[BatchRow]]:
    """Group as many neighbours as fit. The size of a batch is its number of rows times the length
    of the longest."""
    batches: list[list[BatchRow]] = [[]]
    widest = 0
    for sample, length in zip(samples.tolist(), lengths.tolist()):
        widest = max(widest, length)
        if (len(batches[-1]) + 1) * widest > budget and batches[-1]:
            batches.append([])
            widest = length
        batches[-1].append((DocumentPiece(sample, 0, length),))
    return batches


def _pack(pieces: list[DocumentPiece], length: int) -> list[BatchRow]:
    """Pack by best fit, the longest pieces first: each piece goes into the row that it fills
    most."""
    rows: list[list[DocumentPiece]] = []
    free: list[tuple[int, int]] = []  # (tokens left, row), ascending
    for piece in sorted(pieces, key=lambda piece: (piece.start - piece.stop, piece)):
        size = piece.stop - piece.start
        index = bisect_left(free, (size, 0))
        if index < len(free):
            left, row = free.pop(index)
        else:
            left, row = length, len(rows)
            rows.append([])
        rows[row].append(piece)
        if left > size:
            insort(free, (left - size, row))
    return [tuple(row) for row in rows]


def _shuffled(items: list[Item], key: int) -> list[Item]:
    return [items[index] for index in permute(np.arange(len(items)), len(items), key).tolist()]


def _shifted(tokens: NDArray[np.integer], first: int) -> Integers:
    return np.concatenate([[first], tokens[:-1]])
