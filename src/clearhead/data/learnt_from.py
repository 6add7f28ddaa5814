"""Shows what a model could learn a text from: how often the training text contains each piece of
it, and the most similar training pairs. This searches the prepared token files only when somebody
asks, and stores nothing that an export could contain."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from clearhead.data.corpus import Corpus
from clearhead.data.token_files import Integers
from clearhead.errors import DataError

MOST_TOKENS = 50_000_000  # that are searched: a second for each hundred different n-grams
MOST_SHOWN = 1000  # characters of a line
LONGEST_NGRAM = 3
_EDGES = '.,;:!?"“”„«»()[]。，；：！？、（）「」'


@dataclass(frozen=True, kw_only=True)
class SimilarPair:
    """A line of the training text that shares rare n-grams with a text."""

    number: int
    """The number of the pair in the training split, from 0."""
    score: float
    """The sum of log(lines / lines with the n-gram) over the different n-grams of one to three
    tokens that the pair and the text have in common."""
    texts: tuple[str, ...]
    """The sides of the pair; a very long side is truncated."""


@dataclass(frozen=True, kw_only=True)
class LearntFrom:
    """What the training text has in common with a text."""

    counts: dict[str, int]
    """The number of training lines that contain each piece of the text, on its side."""
    nearest: list[SimilarPair]
    searched: int
    """The number of training lines that were searched."""
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
    """Return the words of a text, without the punctuation at their edges. A run of characters
    without spaces, as in Chinese, gives its characters in pairs."""
    pieces: dict[str, None] = {}
    for run in text.split():
        word = run.strip(_EDGES) or run
        if len(word) > 4 and re.search(r"[\u3041-\u30fa\u3400-\u9fff]", word):
            pieces |= dict.fromkeys(word[at : at + 2] for at in range(len(word) - 1))
        else:
            pieces[word] = None
    return list(pieces)


def ngrams_of(ids: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the different n-grams of one to three tokens, in their order."""
    ngrams: dict[tuple[int, ...], None] = {}
    for n in range(1, LONGEST_NGRAM + 1):
        ngrams |= dict.fromkeys(tuple(ids[at : at + n]) for at in range(len(ids) - n + 1))
    return list(ngrams)


class TrainingText:
    """The training split of prepared data, in which texts can be searched for. Each pair or
    labelled text is a line. In plain text, whose documents may be whole files, a line ends with the
    first token that contains a line break, or with its document."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        self.sides = list(corpus.tokenizers)
        self.tokenizer = corpus.tokenizers[self.sides[0]]
        store = corpus.store("train", self.sides[0])
        ends = np.cumsum(store.lengths(np.arange(store.n_documents)))
        if not store.n_tokens:
            raise DataError(f"{corpus.folder} has no training text; prepare it again")
        self.documents = ends[ends <= MOST_TOKENS]
        """The position at which each document ends."""
        if not len(self.documents) or (len(self.sides) == 1 and len(self.documents) < len(ends)):
            self.documents = np.append(self.documents, min(MOST_TOKENS, store.n_tokens))  # is cut
        self.is_all = int(self.documents[-1]) == store.n_tokens
        self.tokens: Integers = store.read(0, int(self.documents[-1]))
        """All tokens to search, one document after the other."""
        self.ends = self._ends_of_lines() if len(self.sides) == 1 else self.documents
        """The position at which each line ends."""
        self.n = len(self.ends)
        self.line_of = np.repeat(np.arange(self.n, dtype=np.uint32), np.diff(self.ends, prepend=0))

    def _ends_of_lines(self) -> Integers:
        vocabulary = range(self.tokenizer.vocab_size)
        breaks = [index for index in vocabulary if "\n" in self.tokenizer.decode([index])]
        after = np.flatnonzero(np.isin(self.tokens, breaks)) + 1
        after = after[~np.isin(after + 1, self.documents)]  # only the end of a document follows
        return np.union1d(after, self.documents)

    @cached_property
    def lines(self) -> list[str]:
        """Return the text of all lines that are searched."""
        bounds = pairwise([0, *self.documents.tolist()])
        texts = (self.tokenizer.decode(self.tokens[start:end]) for start, end in bounds)
        return [line for text in texts for line in text.split("\n")]

    def ask(self, text: str, n_nearest: int = 3) -> LearntFrom:
        """Search the training text for this text."""
        return LearntFrom(
            counts={piece: self.count(piece) for piece in pieces_of(text)},
            nearest=self.nearest(self.tokenizer.encode(text), n_nearest),
            searched=self.n,
            is_all=self.is_all,
        )

    def count(self, piece: str) -> int:
        """Count the lines that contain the piece, as `grep -Fc` does."""
        return sum(piece in line for line in self.lines)

    def nearest(self, ids: Sequence[int], n_nearest: int = 3) -> list[SimilarPair]:
        """Return the lines with the highest scores; of equal scores, the earlier line comes
        first."""
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
                inside = self.line_of[places + offset] == self.line_of[places]
                places = places[same & inside]
            lines = np.unique(self.line_of[places])
            if len(lines):
                scores[lines] += np.log(self.n / len(lines))
        best = np.lexsort((np.arange(self.n), -np.round(scores, 9)))[:n_nearest]
        return [
            SimilarPair(number=int(line), score=float(scores[line]), texts=self._texts(int(line)))
            for line in best
            if scores[line] > 0
        ]

    def _texts(self, line: int) -> tuple[str, ...]:
        start = int(self.ends[line - 1]) if line else 0
        own = self.tokenizer.decode(self.tokens[start : self.ends[line]]).rstrip("\n")
        texts = [own, *(self._text(side, line) for side in self.sides[1:])]
        return tuple(t if len(t) <= MOST_SHOWN else f"{t[:MOST_SHOWN]}…" for t in texts)

    def _text(self, side: str, number: int) -> str:
        ids = self.corpus.store("train", side).document(number)
        if side == "label":
            return next(name for name, index in self.corpus.labels.items() if index == ids[0])
        return self.corpus.tokenizers[side].decode(ids)
