"""Measures the labels that a classifier gives: their accuracy with its confidence interval."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
import torch
from numpy.typing import NDArray

from clearhead.config import BatchConfig
from clearhead.config.decode import TooLongSource
from clearhead.data.batches import (
    IGNORED,
    ClassBatch,
    LabelledBatch,
    class_batch,
    labelled_batch,
    move,
)
from clearhead.data.corpus import Corpus
from clearhead.data.loader import Loader
from clearhead.decoding.cached import evaluating, in_full
from clearhead.decoding.codec import Codec
from clearhead.decoding.sources import warn_of_cut
from clearhead.errors import ConfigError, InputError, nearest, setting
from clearhead.interop.labels import Labels
from clearhead.models import Classifier, MaskedLM
from clearhead.shapes import Float, Tensor
from clearhead.text.tokenizer import Tokenizer

LabelModel = MaskedLM | Classifier
"""The model that labels texts, by a head or by the token in place of a mask."""

BATCH_TOKENS = 4096
CUT = setting("too_long", "cut")
Z = 1.959964  # standard deviations that hold 95% of a normal distribution


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """The number of correct answers, and the number of questions."""

    n_right: int
    n: int

    @property
    def value(self) -> float:
        """The share of correct answers."""
        return self.n_right / self.n

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval by Wilson's score, which stays within 0 and 1 and is reliable for few
        samples and near the ends."""
        p, n, z = self.value, self.n, Z
        middle = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return middle - half, middle + half


@torch.no_grad()
def label_probabilities(
    model: LabelModel, batch: LabelledBatch | ClassBatch, label_ids: Sequence[int]
) -> Float[Tensor, "rows labels"]:
    """Return the probability of each label for each row, among the labels alone: other tokens are
    not answers."""
    with evaluating(model.modules()):
        if isinstance(model, Classifier):
            logits = model(batch.inputs)
        else:
            hidden = model.hidden(batch.inputs)[batch.targets != IGNORED]
            logits = model.output(hidden[None], model.tokens)[0]
    return in_full(logits[:, list(label_ids)]).softmax(-1)


def label_texts(
    model: LabelModel,
    labels: Labels,
    codec: Codec,
    texts: Sequence[str],
    *,
    batch: int = 32,
    too_long: TooLongSource = "refuse",
    names: Sequence[str],
) -> list[dict[str, float] | None]:
    """Return the probability of every label for each text; None for a text that is empty, or too
    long and skipped. Texts of one length run together, `batch` at a time. `names` are the names of
    the texts in messages."""
    if too_long not in get_args(TooLongSource):
        remedy = nearest(str(too_long), get_args(TooLongSource))
        raise ConfigError("too_long", too_long, "is not a valid choice", remedy)
    longest = model.config.max_length
    rows: dict[int, list[int]] = {}
    for index, text in enumerate(texts):
        if not text.strip():
            continue
        tokens = codec.source.encode(codec.as_in_training(text))
        if (n := len(tokens) + 2) > longest:  # the mask or the start, and the end
            if too_long == "refuse":
                what = f"{names[index]} has {n} tokens, but the model takes {longest}"
                raise InputError(f"{what}; shorten it, or have it cut: {CUT}")
            skips = too_long == "skip"
            done = f"left empty; shorten it, or have it cut: {CUT}" if skips else "it was cut"
            warn_of_cut(names[index], longest, n - longest, longest, done)
            if skips:
                continue
            tokens = tokens[: longest - 2]
        if max(tokens, default=0) >= model.config.vocab_size:
            raise InputError(
                f"{names[index]} has the token id {max(tokens)}, but the model has only "
                f"{model.config.vocab_size} tokens; was its tokenizer.json replaced?"
            )
        rows[index] = [*tokens, codec.source.eos_id]
    row_probabilities = label_rows(model, labels, [*rows.values()], codec.source, batch=batch)
    probabilities = dict(zip(rows, row_probabilities))
    return [probabilities.get(index) for index in range(len(texts))]


def label_rows(
    model: LabelModel,
    labels: Labels,
    rows: Sequence[list[int]],
    tokenizer: Tokenizer,
    *,
    batch: int = 32,
) -> list[dict[str, float]]:
    """Return the probability of every label for each row of tokens, which includes its end."""
    ids = list(labels.ids.values())
    by_length = sorted(range(len(rows)), key=lambda index: len(rows[index]))
    probabilities: dict[int, dict[str, float]] = {}
    for first in range(0, len(by_length), batch):
        places = by_length[first : first + batch]
        chosen = [np.array(rows[index]) for index in places]
        made = _unlabelled_batch(chosen, labels, tokenizer)
        made = move(made, next(model.parameters()).device)
        assert isinstance(made, LabelledBatch | ClassBatch)
        for index, row in zip(places, label_probabilities(model, made, ids).tolist()):
            probabilities[index] = dict(zip(labels.ids, row))
    return [probabilities[index] for index in range(len(rows))]


def _unlabelled_batch(
    rows: Sequence[NDArray[np.integer]], labels: Labels, tokenizer: Tokenizer
) -> LabelledBatch | ClassBatch:
    """Make a batch as in training, whose labels are not used."""
    some = [next(iter(labels.ids.values()))] * len(rows)
    settings = {"pad_id": tokenizer.pad_id, "samples": tuple((row,) for row in range(len(rows)))}
    if labels.mask is None:
        return class_batch(rows, some, bos_id=tokenizer.bos_id, **settings)
    return labelled_batch(rows, some, mask_id=labels.mask, **settings)


def accuracy(model: LabelModel, corpus: Corpus, split: str) -> Accuracy:
    """Measure the accuracy on a whole split of prepared data."""
    table = confusions(model, corpus, split)
    return Accuracy(n_right=int(table.trace()), n=int(table.sum()))


def confusions(model: LabelModel, corpus: Corpus, split: str) -> NDArray[np.int64]:
    """Count how many texts of each label (a row) get each label (a column)."""
    ids = list(corpus.labels.values())
    longest = corpus.facts(split).longest["text"] + 1
    config = BatchConfig(batch_tokens=max(BATCH_TOKENS, longest))
    device = next(model.parameters()).device
    places = {label: place for place, label in enumerate(ids)}
    table = np.zeros((len(ids), len(ids)), np.int64)
    for batch in Loader(corpus, config, split=split, epochs=1):
        batch = move(batch, device)
        assert isinstance(batch, LabelledBatch | ClassBatch)
        guesses = label_probabilities(model, batch, ids).argmax(1).tolist()
        for label, guess in zip(batch.targets[batch.targets != IGNORED].tolist(), guesses):
            table[places[label], guess] += 1
    return table
