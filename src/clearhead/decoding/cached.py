"""A model and its cache during decoding. Every strategy steps through this class.

The model computes everything with its own `encode`, `decode` (or `forward`) and cache. Here, rows
only join and leave the batch, fork, and drop tokens."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from clearhead.errors import ModelError
from clearhead.models import CausalLM, Seq2Seq
from clearhead.parts.cache import Cache

Ids = Sequence[int]
GenerativeModel = CausalLM | Seq2Seq
"""A model that scores the next token."""


class CachedModel:
    """A model with the cache of its running rows."""

    def __init__(self, model: GenerativeModel, rows_per_input: int = 1) -> None:
        """`rows_per_input` is the number of rows for each prompt or source: the width of a beam."""
        self.model = model
        self.config = model.config
        self.rows_per_input = rows_per_input
        self.modules = list(model.modules())
        self.cache: Cache | None = None

    @torch.inference_mode()
    def join(self, prompts: Sequence[Ids], sources: Sequence[Ids] | None) -> Tensor:
        """Add rows after the existing ones. Returns the scores of the token that follows each
        prompt (prompts, vocab), which all rows of the prompt share."""
        tokens, real = padded(prompts, self._device)
        last = torch.tensor([len(prompt) - 1 for prompt in prompts], device=self._device)
        row = torch.arange(len(prompts), device=self._device)
        with evaluating(self.modules):
            if isinstance(self.model, Seq2Seq):
                assert sources is not None
                ids, real_source = padded(sources, self._device)
                memory = self.model.encode(ids, real="all" if real_source is None else real_source)
                new = self.model.new_cache(memory)
                call, table = self.model.decode_hidden, self.model.target_table
            else:
                new = self.model.new_cache(len(prompts))
                call, table = self.model.hidden, self.model.tokens
            hidden = call(tokens, real="all" if real is None else real, cache=new)
            scores = self.model.output(hidden[row, last][:, None], table)[:, 0]
        if self.rows_per_input > 1:
            new.reorder(row.repeat_interleave(self.rows_per_input), self.rows_per_input)
        if self.cache is None:
            self.cache = new
        else:
            self.cache.join(new)
        return in_full(scores)

    @torch.inference_mode()
    def step(
        self, tokens: Sequence[int], rows: Sequence[int] | None = None, real: Tensor | None = None
    ) -> Tensor:
        """Let row i continue row rows[i] (or itself, without `rows`) with tokens[i]. Rows that are
        not named leave. Returns the scores of the next tokens (rows, vocab)."""
        if rows is not None:
            self.keep(rows)
        return self.read(torch.tensor(tokens, device=self._device)[:, None], real)[:, 0]

    @torch.inference_mode()
    def read(self, tokens: Tensor, real: Tensor | None = None) -> Tensor:
        """Read several more tokens for each row (rows, n), of which `real` are real. Returns the
        scores that follow each token (rows, n, vocab)."""
        real_tokens = "all" if real is None else real
        with evaluating(self.modules):
            if isinstance(self.model, Seq2Seq):
                return in_full(self.model.decode(tokens, real=real_tokens, cache=self.cache))
            return in_full(self.model(tokens, real=real_tokens, cache=self.cache))

    @torch.inference_mode()
    def keep(self, rows: Sequence[int]) -> None:
        """Make row i a copy of row rows[i]."""
        assert self.cache is not None
        if not rows:
            self.cache = None
        elif list(rows) != list(range(len(self.cache.lengths))):
            self.cache.reorder(torch.tensor(rows, device=self._device), self.rows_per_input)

    def forget(self, counts: list[int]) -> None:
        """Remove the last tokens of each row: as many as `counts` says for the row."""
        assert self.cache is not None
        self.cache.forget(counts)

    @property
    def _device(self) -> torch.device:
        return self.model.tokens.weight.device


@contextmanager
def evaluating(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Run the block without dropout, and then restore the mode of every module."""
    training = [module for module in modules if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def padded(rows: Sequence[Ids], device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Turn ids into a padded tensor, and a mask of the real tokens (None: all are real)."""
    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows], device=device)
    if all(len(row) == longest for row in rows):
        return ids, None
    lengths = torch.tensor([len(row) for row in rows], device=device)
    return ids, torch.arange(longest, device=device) < lengths[:, None]


def in_full(scores: Tensor) -> Tensor:
    """Convert scores to fp32 at least, because sums of log-probabilities would drift in half
    precision. Raises if some scores are NaN or infinite; a model may exclude single tokens by
    -inf."""
    best = scores.amax(dim=-1)  # NaN, if one of them is
    if not best.isfinite().all():
        raise ModelError(
            "the model computes scores that are NaN or infinite, so there is no output; are its "
            "weights damaged or too large, or was it trained in a wider number format?"
        )
    return scores.to(torch.promote_types(scores.dtype, torch.float32))
