"""Measures the loss of a masked language model on the tokens that it has to predict.

This is not the probability of a text: each prediction sees both sides, and the exponential of the
mean is called a pseudo-perplexity. It can compare models with the same tokenizer and the same share
of masked tokens."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from clearhead.config import BatchConfig
from clearhead.data.batches import IGNORED, MaskedBatch, move
from clearhead.data.corpus import Corpus
from clearhead.data.loader import Loader
from clearhead.decoding.cached import evaluating, in_full
from clearhead.evaluation.perplexity import exponential
from clearhead.models import MaskedLM

ROWS = 32  # that are worked on together


@dataclass(frozen=True, kw_only=True)
class MaskedLoss:
    """The summed loss over masked tokens, and the number of these tokens."""

    nats: float
    n_tokens: int
    """Masked tokens that were predicted."""

    @property
    def per_token(self) -> float:
        """The mean loss in nats for each masked token."""
        return self.nats / self.n_tokens

    @property
    def perplexity(self) -> float:
        """The exponential of the mean loss (a pseudo-perplexity)."""
        return exponential(self.per_token)


@torch.no_grad()
def masked_loss(
    model: MaskedLM, corpus: Corpus, split: str, *, p_mask: float = 0.15, length: int | None = None
) -> MaskedLoss:
    """Measure the loss over a split of prepared data, in rows of `length` tokens (None: as many as
    the model takes). The same tokens are masked every time."""
    config = BatchConfig(
        seed=0, length=length or model.config.max_length, batch_size=ROWS, p_mask=p_mask
    )
    device = next(model.parameters()).device
    nats, n_tokens = 0.0, 0
    with evaluating(model.modules()):
        for batch in Loader(corpus, config, split=split, epochs=1):
            batch = move(batch, device)
            assert isinstance(batch, MaskedBatch)
            chosen = batch.targets != IGNORED
            hidden = model.hidden(batch.inputs, real="all")[chosen]
            logits = in_full(model.output(hidden[None], model.tokens)[0])
            nats += F.cross_entropy(logits, batch.targets[chosen], reduction="sum").item()
            n_tokens += len(logits)
    return MaskedLoss(nats=nats, n_tokens=n_tokens)
