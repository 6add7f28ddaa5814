"""The accuracy of a classifier with its confidence interval."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from clearhead.config import BatchConfig
from clearhead.data.batches import IGNORED, LabelledBatch, move
from clearhead.data.corpus import Corpus
from clearhead.data.loader import Loader
from clearhead.models import MaskedLM
from clearhead.shapes import Float, Tensor

BATCH_TOKENS = 4096
Z = 1.959964  # standard deviations that hold 95 % of a normal distribution


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """The number of right answers out of the number asked."""

    n_right: int
    n: int

    @property
    def value(self) -> float:
        """The share of right answers."""
        return self.n_right / self.n

    @property
    def interval(self) -> tuple[float, float]:
        """95 %, by Wilson's score: within 0 and 1, and reliable for few samples and near the
        ends."""
        p, n, z = self.value, self.n, Z
        middle = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return middle - half, middle + half


@torch.no_grad()
def label_probabilities(
    model: MaskedLM, batch: LabelledBatch, label_ids: Sequence[int]
) -> Float[Tensor, "rows labels"]:
    """The probability of each label for each row, among the labels alone: other tokens are not
    answers."""
    hidden = model.hidden(batch.inputs)[batch.targets != IGNORED]
    logits = model.output(hidden[None], model.tokens)[0]
    return logits[:, list(label_ids)].float().softmax(-1)


def accuracy(model: MaskedLM, corpus: Corpus, split: str) -> Accuracy:
    """The accuracy on a whole split of prepared data."""
    ids = list(corpus.labels.values())
    longest = corpus.facts(split).longest["text"] + 1
    config = BatchConfig(batch_tokens=max(BATCH_TOKENS, longest))
    device = next(model.parameters()).device
    n_right = n = 0
    for batch in Loader(corpus, config, split=split, epochs=1):
        batch = move(batch, device)
        assert isinstance(batch, LabelledBatch)
        guesses = torch.tensor(ids, device=device)[label_probabilities(model, batch, ids).argmax(1)]
        n_right += int((guesses == batch.targets[batch.targets != IGNORED]).sum())
        n += len(guesses)
    return Accuracy(n_right=n_right, n=n)
