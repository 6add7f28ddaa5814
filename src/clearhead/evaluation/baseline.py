"""The baseline that a classifier must beat: TF-IDF and logistic regression, by scikit-learn (the
extra `eval`). It takes seconds; if it is as good, a Transformer is not worth its time."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from clearhead.data.corpus import Corpus
from clearhead.evaluation.classification import Accuracy

NAME = "TF-IDF and logistic regression"
AT_MOST = 20_000  # the highest number of texts from which it learns
FOLDS = 5
FOLDED_AT_MOST = 4000  # texts that are cut into folds: each is learnt from four times
_BLANKS = re.compile(r"\s")


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """The result of the baseline: how many texts it labels correctly."""

    right: Accuracy
    learnt_from: int

    def __str__(self) -> str:
        low, high = self.right.interval
        return (
            f"{100 * self.right.value:.2f}% (95% interval {100 * low:.2f} … {100 * high:.2f}; "
            f"{NAME}, learnt from {self.learnt_from:,} texts)"
        )


def can_measure_baseline() -> bool:
    """Tell whether scikit-learn is installed."""
    return find_spec("sklearn") is not None


def baseline(corpus: Corpus, split: str) -> Baseline:
    """Learn from the training split of prepared data, and measure on another split."""
    texts, labels = labelled_texts(corpus, "train", AT_MOST)
    others, true_labels = labelled_texts(corpus, split)
    predicted = _pipeline(texts).fit(texts, labels).predict(others)
    n_right = sum(int(guess == label) for guess, label in zip(predicted, true_labels))
    return Baseline(right=Accuracy(n_right=n_right, n=len(true_labels)), learnt_from=len(texts))


def cross_validated(texts: Sequence[str], labels: Sequence[str]) -> Baseline | None:
    """Label each fifth of the texts by a model of the other four fifths. None: a label has too few
    texts."""
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    texts, labels = texts[:FOLDED_AT_MOST], labels[:FOLDED_AT_MOST]
    if min(map(labels.count, set(labels))) < FOLDS or len(set(labels)) < 2:
        return None
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    predicted = cross_val_predict(_pipeline(texts), list(texts), list(labels), cv=folds)
    n_right = sum(guess == label for guess, label in zip(predicted, labels))
    right = Accuracy(n_right=int(n_right), n=len(labels))
    return Baseline(right=right, learnt_from=len(texts) * (FOLDS - 1) // FOLDS)


def labelled_texts(
    corpus: Corpus, split: str, at_most: int | None = None
) -> tuple[list[str], list[int]]:
    """Return the texts of a split as the tokenizer decodes them, and the tokens of their labels."""
    import numpy as np

    from clearhead.data.order import derive_key, permute

    n = corpus.facts(split).documents
    numbers = permute(np.arange(min(n, at_most or n)), n, derive_key("baseline"))
    tokenizer = corpus.tokenizers["text"]
    stores = [corpus.store(split, side).documents(numbers) for side in ("text", "label")]
    texts = [tokenizer.decode(ids.tolist()) for ids in stores[0]]
    return texts, [int(ids[0]) for ids in stores[1]]


def _pipeline(texts: Sequence[str]) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    letters = sum(map(len, texts))
    blanks = sum(len(_BLANKS.findall(text)) for text in texts)
    words = {"ngram_range": (1, 2), "token_pattern": r"(?u)\b\w+\b"}
    pieces = {"analyzer": "char", "ngram_range": (1, 3)}  # a script without blanks between words
    kind = pieces if 20 * blanks < letters else words
    vectors = TfidfVectorizer(**kind, sublinear_tf=True, min_df=2 if len(texts) > 500 else 1)
    return make_pipeline(vectors, LogisticRegression(C=10.0, max_iter=300))
