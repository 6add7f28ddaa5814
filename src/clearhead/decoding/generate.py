"""One token after another, with a cache: greedy, or sampled with a temperature and a top-k."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from clearhead.errors import ConfigError, InputError
from clearhead.models import CausalLM, Seq2Seq
from clearhead.shapes import Float, Int, Tensor, Tokens

Scores = Float[Tensor, "batch vocab"]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """How the next token is chosen from its scores."""

    temperature: float = 1.0
    """0 takes the likeliest token; below 1 sharpens the distribution, above 1 flattens it."""
    top_k: int | None = None
    """Only the k likeliest tokens can be chosen; None: all."""

    def __post_init__(self) -> None:
        if not self.temperature >= 0:
            rule, remedy = "must be at least 0", "use 0 for the likeliest token"
            raise ConfigError("temperature", self.temperature, rule, remedy)
        if self.top_k is not None and self.top_k < 1:
            rule, remedy = "must be at least 1", "use None to allow every token"
            raise ConfigError("top_k", self.top_k, rule, remedy)

    def __call__(
        self, scores: Scores, generator: torch.Generator | None = None
    ) -> Int[Tensor, " batch"]:
        if self.temperature == 0:
            return scores.argmax(dim=-1)
        if self.top_k is not None and self.top_k < scores.shape[-1]:
            kth = scores.topk(self.top_k, dim=-1).values[:, -1:]
            scores = scores.masked_fill(scores < kth, -torch.inf)
        probabilities = (scores / self.temperature).softmax(dim=-1)
        return torch.multinomial(probabilities, 1, generator=generator).squeeze(1)


def generate(
    model: CausalLM,
    prompts: Tokens,
    *,
    max_new: int,
    eos_id: int | None = None,
    choice: Choice = Choice(),  # noqa: B008 (frozen)
    generator: torch.Generator | None = None,
) -> Tokens:
    """Continue each prompt by up to `max_new` tokens. Prompts of different lengths are padded on
    the left. Returns the new tokens only, padded on the right behind `eos_id`."""
    _check_room(model, prompts.shape[1] + max_new)

    def step(tokens: Tokens) -> Scores:
        # What the model wrote is real, even where it wrote the pad id.
        return model(tokens, real=None if tokens is prompts else "all", cache=cache)[:, -1]

    with evaluating(model):
        cache = model.new_cache(len(prompts), capacity=prompts.shape[1] + max_new)
        return _unroll(
            step,
            first=prompts,
            max_new=max_new,
            eos_id=eos_id,
            pad_id=model.config.pad_id,
            choose=lambda scores: choice(scores, generator),
        )


def translate(
    model: Seq2Seq,
    sources: Tokens,
    *,
    bos_id: int,
    eos_id: int,
    max_new: int,
    choice: Choice = Choice(temperature=0),  # noqa: B008 (frozen)
    generator: torch.Generator | None = None,
) -> Tokens:
    """Write a target for each source, which is encoded once. Returns the target behind its
    `bos_id`, padded on the right behind `eos_id`."""
    _check_room(model, 1 + max_new)
    with evaluating(model):
        cache = model.new_cache(model.encode(sources), capacity=1 + max_new)
        return _unroll(
            lambda tokens: model.decode(tokens, real="all", cache=cache)[:, -1],
            first=sources.new_full((len(sources), 1), bos_id),
            max_new=max_new,
            eos_id=eos_id,
            pad_id=model.config.pad_id,
            choose=lambda scores: choice(scores, generator),
        )


def _unroll(
    step: Callable[[Tokens], Scores],
    *,
    first: Tokens,
    max_new: int,
    eos_id: int | None,
    pad_id: int | None,
    choose: Callable[[Scores], Tensor],
) -> Tokens:
    """Feed `first`, then each chosen token, until all sequences have ended."""
    filler = eos_id if pad_id is None else pad_id
    ended = torch.zeros(len(first), dtype=torch.bool, device=first.device)
    written: list[Tensor] = []
    tokens = first
    for _ in range(max_new):
        new = choose(step(tokens))
        if eos_id is not None and filler is not None:
            new = new.masked_fill(ended, filler)
            ended = ended | (new == eos_id)
        written.append(new)
        if ended.all():
            break
        tokens = new[:, None]
    return torch.stack(written, dim=1) if written else first[:, :0]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Without dropout or gradients; afterwards the model is in the mode it was found in."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)


def _check_room(model: CausalLM | Seq2Seq, length: int) -> None:
    limit = model.config.max_length
    if length > limit:
        raise InputError(
            f"prompt and new tokens make {length}, more than max_length={limit}; "
            "shorten the prompt or ask for fewer new tokens"
        )
