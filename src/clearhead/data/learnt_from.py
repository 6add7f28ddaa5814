"""What a model learnt a text from: how often the training text has each of its pieces, and the
training pairs that are most like it. The prepared token files are all that this needs: they are
searched when somebody asks, and nothing is stored that an export could carry."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from clearhead.data.corpus import Corpus
from clearhead.data.token_files import Integers, TokenStore

MOST_TOKENS = 50_000_000  # that are searched: a second for each hundred different n-grams
LONGEST_NGRAM = 3
_EDGES = '.,;:!?"“”„«»()[]。，；：！？、（）「」'


@dataclass(frozen=True, kw_only=True)
class SimilarPair:
    """A training document that shares rare n-grams with a text."""

    number: int
    """Its place in the training split, from 0."""
    score: float
    """Over the different n-grams that both have: the sum of log(documents / documents with it)."""
    texts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class LearntFrom:
    """What the training text has of a text."""

    counts: dict[str, int]
    """For each piece of the text, the training lines of its side that contain it."""
    nearest: list[SimilarPair]
    searched: int
    """Training lines that were searched."""
    is_all: bool

    @property
    def never_seen(self) -> list[str]:
        """The pieces that no training line contains."""
        return [piece for piece, n in self.counts.items() if not n]

    def __str__(self) -> str:
        some = "" if self.is_all else f" (of the first {self.searched:,} lines)"
        lines = [
            f"  {piece:<16}{f'in {n:,} training lines' if n else 'never in the training text'}"
            for piece, n in self.counts.items()
        ]
        for pair in self.nearest:
            lines.append(f"  near {pair.score:6.1f}     {' → '.join(map(repr, pair.texts))}")
        return "\n".join([f"what it learnt this from{some}:", *lines])


def pieces_of(text: str) -> list[str]:
    """The words of a text, without the punctuation at their edges; where a run of characters has no
    blanks (Chinese, say), its characters in pairs."""
    pieces: dict[str, None] = {}
    for run in text.split():
        word = run.strip(_EDGES) or run
        if len(word) > 4 and re.search(r"[\u3041-\u30fa\u3400-\u9fff]", word):
            pieces |= dict.fromkeys(word[at : at + 2] for at in range(len(word) - 1))
        else:
            pieces[word] = None
    return list(pieces)


def ngrams_of(ids: Sequence[int]) -> list[tuple[int, ...]]:
    """The different n-grams of one to three tokens, in their order."""
    ngrams: dict[tuple[int, ...], None] = {}
    for n in range(1, LONGEST_NGRAM + 1):
        ngrams |= dict.fromkeys(tuple(ids[at : at + n]) for at in range(len(ids) - n + 1))
    return list(ngrams)


class TrainingText:
    """The training split of prepared data, to be asked what it has of a text."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        self.sides = list(corpus.tokenizers)
        self.tokenizer = corpus.tokenizers[self.sides[0]]
        self.store: TokenStore = corpus.store("train", self.sides[0])
        lengths = self.store.lengths(np.arange(self.store.n_documents))
        self.n = int(np.searchsorted(np.cumsum(lengths), MOST_TOKENS, side="right"))
        self.n = max(1, self.n)
        self.document_of: Integers = np.repeat(np.arange(self.n), lengths[: self.n])

    @cached_property
    def tokens(self) -> Integers:
        """Of all documents that are searched, one behind the other."""
        return self.store.read(0, len(self.document_of))

    @cached_property
    def lines(self) -> list[str]:
        """Of the documents that are searched; a document may be a whole file."""
        documents = self.store.documents(np.arange(self.n))
        texts = (self.tokenizer.decode(ids.tolist()) for ids in documents)
        return [line for text in texts for line in text.split("\n")]

    def ask(self, text: str, n_nearest: int = 3) -> LearntFrom:
        """What the training text has of this one."""
        return LearntFrom(
            counts={piece: self.count(piece) for piece in pieces_of(text)},
            nearest=self.nearest(self.tokenizer.encode(text), n_nearest),
            searched=self.n,
            is_all=self.n == self.store.n_documents,
        )

    def count(self, piece: str) -> int:
        """The lines that contain the piece, as `grep -Fc` counts them."""
        return sum(piece in line for line in self.lines)

    def nearest(self, ids: Sequence[int], n_nearest: int = 3) -> list[SimilarPair]:
        """The documents with the highest scores, the earlier one of two that are equal."""
        scores = np.zeros(self.n)
        begins: dict[int, Integers] = {}
        for ngram in ngrams_of(ids):
            first = ngram[0]
            if first not in begins:
                begins[first] = np.flatnonzero(self.tokens == first)
            places = begins[first]
            for offset, token in enumerate(ngram[1:], 1):
                places = places[places + offset < len(self.tokens)]
                same = self.tokens[places + offset] == token
                inside = self.document_of[places + offset] == self.document_of[places]
                places = places[same & inside]
            documents = np.unique(self.document_of[places])
            if len(documents):
                scores[documents] += np.log(self.n / len(documents))
        best = np.lexsort((np.arange(self.n), -np.round(scores, 9)))[:n_nearest]
        return [
            SimilarPair(number=int(at), score=float(scores[at]), texts=self._texts(int(at)))
            for at in best
            if scores[at] > 0
        ]

    def _texts(self, number: int) -> tuple[str, ...]:
        return tuple(self._text(side, number) for side in self.sides)

    def _text(self, side: str, number: int) -> str:
        ids = self.corpus.store("train", side).document(number)
        if side == "label":
            return next(name for name, index in self.corpus.labels.items() if index == ids[0])
        return self.corpus.tokenizers[side].decode(ids)
