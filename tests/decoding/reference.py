"""The slow and obvious way: no cache, no batch, no preparation; every text read again, whole, for
each token. What the package does must be what this does."""

import itertools
import math
from collections.abc import Sequence

import torch
from hypothesis import Phase
from hypothesis import strategies as st
from torch import Tensor

from clearhead.config import BeamConfig, ModelConfig
from clearhead.models import CausalLM, Seq2Seq
from tests.drawing import configs, random_model

EOS, START = 2, 1
NO_SHRINKING = (Phase.explicit, Phase.generate)
"""A smaller failing model is no easier to read, and looking for it takes minutes."""


class Uncached:
    """A model that can be written with, and remembers nothing but tokens."""

    def __init__(self, model: CausalLM | Seq2Seq) -> None:
        self.model = model
        self.config = model.config

    def begin(self, reserve: int) -> "UncachedWriting":
        return UncachedWriting(self.model)


class UncachedWriting:
    def __init__(self, model: CausalLM | Seq2Seq) -> None:
        self.model = model
        self.width = 1
        self.texts: list[list[list[int]]] = []  # group, hypothesis, tokens
        self.sources: list[list[int] | None] = []

    def __len__(self) -> int:
        return len(self.texts)

    def join(self, prompts, sources) -> Tensor:
        first = len(self.texts)
        self.texts += [[list(prompt)] * self.width for prompt in prompts]
        self.sources += [None] * len(prompts) if sources is None else list(sources)
        return self._scores()[first:, :1]

    def advance(self, tokens: Tensor, parents: Tensor | None = None) -> Tensor:
        n = tokens.shape[1]
        if parents is None:
            parents = torch.arange(n).expand(len(tokens), n)
        self.texts = [
            [group[parent] + [token] for token, parent in zip(*row)]
            for group, *row in zip(self.texts, tokens.tolist(), parents.tolist())
        ]
        self.width = n
        return self._scores()

    def keep(self, groups: list[int]) -> None:
        self.texts = [self.texts[g] for g in groups]
        self.sources = [self.sources[g] for g in groups]

    def _scores(self) -> Tensor:
        texts = [text for group in self.texts for text in group]
        sources = [source for source in self.sources for _ in range(self.width)]
        rows = all_next_scores(self.model, texts, sources)
        return rows.unflatten(0, (len(self.texts), self.width))


@torch.no_grad()
def all_next_scores(
    model: CausalLM | Seq2Seq, texts: list[list[int]], sources: Sequence[list[int] | None]
) -> Tensor:
    """Each text read whole; texts of one shape side by side, so that nothing is ever padded."""
    found: dict[int, Tensor] = {}
    shapes = [(len(text), len(source or ())) for text, source in zip(texts, sources)]
    for shape in set(shapes):
        rows = [row for row, each in enumerate(shapes) if each == shape]
        # An idle sequence may run past the end of the table: its scores are never looked at.
        tokens = torch.tensor([texts[row][: model.config.max_length] for row in rows])
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
