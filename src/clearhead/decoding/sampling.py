"""Draws tokens at random. Each sequence has its own stream of random numbers."""

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from clearhead.config import Choice, DecodeConfig
from clearhead.decoding.cached import GenerativeModel
from clearhead.decoding.constraints import Constraints
from clearhead.decoding.generation import MAX_ROWS, Choose, RunningText, collect, decode_tokens
from clearhead.decoding.inputs import TokenRows
from clearhead.decoding.ranking import argmax
from clearhead.decoding.results import Output
from clearhead.errors import InputError


def sample(
    model: GenerativeModel,
    inputs: TokenRows,
    config: DecodeConfig,
    choice: Choice = Choice(),  # noqa: B008 (frozen)
    *,
    seed: int | Sequence[int] = 0,
    constraint: Constraints = None,
    max_rows: int = MAX_ROWS,
) -> list[Output]:
    """Draw each token. A list of seeds gives each sequence its own seed; from a single seed, each
    sequence's seed is derived by its place. Nothing else is random: torch's generators are not
    used."""
    choose = chooser(choice, seed)
    events = decode_tokens(model, inputs, config, choose, constraint=constraint, max_rows=max_rows)
    return collect(events)


def chooser(choice: Choice, seed: int | Sequence[int]) -> Choose:
    """Return the function that `decode_tokens` calls to choose the next tokens."""

    def choose(scores: Tensor, texts: Sequence[RunningText]) -> list[int]:
        seen = [text.tokens for text in texts] if choice.repetition_penalty != 1 else None
        if choice.temperature == 0:
            return argmax(penalised(scores, seen, choice.repetition_penalty))
        draws = [
            uniform(seed_of(seed, text.input.number), len(text.new), "token") for text in texts
        ]
        return draw(probabilities(scores, choice, seen), draws)

    return choose


def seed_of(seed: int | Sequence[int], index: int) -> int | str:
    """Derive the seed of one sequence from the common seed and the place of the sequence."""
    if isinstance(seed, int):
        return f"{seed}/{index}"
    if index >= len(seed):
        rule = f"input {index} has no seed, since there are only {len(seed)}"
        raise InputError(f"{rule}; give one for each input, or one number for all")
    return seed[index]


def uniform(seed: int | str, position: int, purpose: str) -> float:
    """Return a number in [0, 1) that depends only on the three arguments."""
    key = f"{seed}/{position}/{purpose}".encode()
    return (
        int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little")
        / 2**64
        * (1 - 2**-53)
    )


def probabilities(scores: Tensor, choice: Choice, seen: Sequence[list[int]] | None) -> Tensor:
    """Return the probability with which each token is drawn (rows, vocab), in fp64."""
    scores = penalised(scores, seen, choice.repetition_penalty).double()
    if choice.temperature == 0:
        one_hot = torch.zeros_like(scores)
        return one_hot.scatter_(1, torch.tensor(argmax(scores), device=scores.device)[:, None], 1)
    # The highest score becomes 0: at the lowest temperatures, several scores could otherwise be
    # infinite.
    scores = (scores - scores.amax(dim=1, keepdim=True)) / choice.temperature
    if choice.top_k is not None and choice.top_k < scores.shape[1]:
        kth = scores.topk(choice.top_k, dim=1).values[:, -1:]
        scores = scores.masked_fill(scores < kth, -torch.inf)
    chances = scores.softmax(dim=1)
    if choice.top_p < 1:
        falling, order = chances.sort(dim=1, descending=True, stable=True)
        before = falling.cumsum(dim=1) - falling
        falling = falling.masked_fill(before >= choice.top_p, 0)
        chances = torch.zeros_like(chances).scatter_(1, order, falling)
        chances = chances / chances.sum(dim=1, keepdim=True)
    if choice.min_p > 0:
        least = choice.min_p * chances.amax(dim=1, keepdim=True)
        chances = chances.masked_fill(chances < least, 0)
    return chances / chances.sum(dim=1, keepdim=True)


def penalised(scores: Tensor, seen: Sequence[list[int]] | None, penalty: float) -> Tensor:
    """Return the scores after the repetition penalty."""
    if seen is None or penalty == 1:
        return scores
    scores = scores.clone()
    for row, tokens in zip(scores, seen):
        index = torch.tensor(sorted(set(tokens)), device=scores.device)
        row[index] = torch.where(row[index] > 0, row[index] / penalty, row[index] * penalty)
    return scores


def draw(chances: Tensor, draws: Sequence[float]) -> list[int]:
    """Find where each number in [0, 1) falls in its row's cumulative probabilities."""
    cumulated = chances.cumsum(dim=1)
    total = cumulated[:, -1:]
    threshold = torch.tensor(draws, dtype=chances.dtype, device=chances.device)[:, None] * total
    # Rounding up must not go past the last token with a positive probability.
    threshold = torch.minimum(threshold, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulated, threshold, right=True)[:, 0].tolist()
