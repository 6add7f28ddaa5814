"""The slow and obvious way: no cache, no batch; every text is read again, whole, for each token.
What the package does must be what this does."""

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

import torch
from hypothesis import Phase
from hypothesis import strategies as st
from torch import Tensor

from clearhead.config import BeamConfig, ModelConfig
from clearhead.decoding import beam as beam_module
from clearhead.decoding import generation
from clearhead.models import CausalLM, Seq2Seq
from tests.drawing import configs, random_model

EOS, START = 2, 1
NO_SHRINKING = (Phase.explicit, Phase.generate)
"""A smaller failing model is no easier to read, and looking for it takes minutes."""


class UncachedModel:
    """As `CachedModel`, but it remembers nothing but tokens."""

    def __init__(self, model: CausalLM | Seq2Seq, rows_per_input: int = 1) -> None:
        self.model, self.config, self.rows_per_input = model, model.config, rows_per_input
        self.rows: list[tuple[list[int], list[int] | None]] = []  # text and source

    def join(self, prompts, sources) -> Tensor:
        new = list(zip(map(list, prompts), sources or [None] * len(prompts)))
        self.rows += [row for row in new for _ in range(self.rows_per_input)]
        return all_next_scores(self.model, *map(list, zip(*new)))

    def step(self, tokens, rows=None) -> Tensor:
        self.keep(range(len(self.rows)) if rows is None else rows)
        self.rows = [([*text, token], source) for (text, source), token in zip(self.rows, tokens)]
        return all_next_scores(self.model, *map(list, zip(*self.rows)))

    def keep(self, rows) -> None:
        self.rows = [self.rows[row] for row in rows]


@contextmanager
def uncached() -> Iterator[None]:
    """Inside, every strategy but speculation reads each text again for each token."""
    with (
        patch.object(generation, "CachedModel", UncachedModel),
        patch.object(beam_module, "CachedModel", UncachedModel),
    ):
        yield


@torch.no_grad()
def all_next_scores(
    model: CausalLM | Seq2Seq, texts: list[list[int]], sources: Sequence[list[int] | None]
) -> Tensor:
    """Each text read whole; texts of one shape side by side, so that nothing is ever padded."""
    found: dict[int, Tensor] = {}
    shapes = [(len(text), len(source or ())) for text, source in zip(texts, sources)]
    for shape in set(shapes):
        rows = [row for row, each in enumerate(shapes) if each == shape]
        tokens = torch.tensor([texts[row] for row in rows])
        if isinstance(model, CausalLM):
            scores = model(tokens, real="all")
        else:
            given = torch.tensor([sources[row] for row in rows])
            scores = model(given, tokens, source_real="all", target_real="all")
        found |= dict(zip(rows, scores[:, -1]))
    return torch.stack([found[row] for row in range(len(texts))])


def next_scores(model: CausalLM | Seq2Seq, text: list[int], source: list[int] | None) -> Tensor:
    return all_next_scores(model, [text], [source])[0]


def all_texts(vocab: Sequence[int], eos: int, longest: int):
    """Every text that ends in `eos`, or is as long as can be."""
    others = [token for token in vocab if token != eos]
    for n in range(longest):
        for body in itertools.product(others, repeat=n):
            yield [*body, eos]
    for body in itertools.product(others, repeat=longest):
        yield list(body)


def score_of(log_probs: Sequence[float], beam: BeamConfig) -> float:
    return math.fsum(log_probs) / beam.normaliser(len(log_probs))


@st.composite
def writers(draw: st.DrawFn, family: str | None = None) -> CausalLM | Seq2Seq:
    """A tiny model of a random configuration that writes, in fp64. With larger matrices than those
    of a first model, what it writes depends on all that it reads."""
    family = family or draw(st.sampled_from(["decoder", "encoder-decoder"]))
    config: ModelConfig = draw(configs(family=family))
    return vivid(random_model(config, seed=draw(st.integers(0, 99))))


@torch.no_grad()
def vivid(model):
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2 and "tokens" not in name and "positions" not in name:
            parameter.mul_(2)
    return model


def random_inputs(config: ModelConfig, lengths: Sequence[int], seed: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    known = torch.tensor([i for i in range(config.vocab_size) if i != config.pad_id])
    return [known[torch.randint(len(known), (n,), generator=generator)].tolist() for n in lengths]
