"""Rows that step, fork, join, leave and take tokens back score as each text does, read at once."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.decoding.cached import CachedModel
from clearhead.models import CausalLM
from tests.decoding.reference import (
    NO_SHRINKING,
    START,
    all_next_scores,
    random_inputs,
    writers,
)


def assert_same(scores: torch.Tensor, expected: torch.Tensor) -> None:
    """To rounding: scores of these models are a few units large."""
    assert scores.shape == expected.shape
    assert (scores - expected).abs().max().item() < 1e-10


@settings(max_examples=15, phases=NO_SHRINKING)
@given(writers(), st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(0, 99))
def test_every_step_of_every_configuration_scores_as_the_model_does(model, lengths, seed):
    inputs = random_inputs(model.config, lengths, seed)
    decoder = isinstance(model, CausalLM)
    cached = CachedModel(model)
    texts = [list(each) if decoder else [START] for each in inputs]
    sources = [None] * len(inputs) if decoder else inputs
    scores = cached.join(texts, None if decoder else inputs)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(6):
        assert_same(scores, all_next_scores(model, texts, sources))
        tokens = torch.randint(model.config.output_vocab_size, (len(inputs),), generator=generator)
        for text, token in zip(texts, tokens.tolist()):
            text.append(token)
        scores = cached.step(tokens.tolist())


@settings(max_examples=15, phases=NO_SHRINKING)
@given(writers(), st.integers(0, 999))
def test_beams_that_fork_join_and_leave_score_as_each_text_does_alone(model, seed):
    """A random life of a batch: hypotheses fork, inputs leave and change places, others join."""
    generator = torch.Generator().manual_seed(seed)
    width = 3

    def number(below: int, *shape: int) -> torch.Tensor:
        return torch.randint(below, shape, generator=generator)

    decoder = isinstance(model, CausalLM)
    cached = CachedModel(model, rows_per_input=width)
    texts: list[list[int]] = []  # `width` of each input
    sources: list[list[int] | None] = []
    for step in range(7):
        places = list(range(len(texts) // width))
        if step in (2, 4):
            places = [places[-1], *places[:1]]  # some leave, and the last becomes the first
        if step > 0:
            parents = number(width, len(places), width).tolist()
            rows = [place * width + p for place, row in zip(places, parents) for p in row]
            tokens = number(model.config.output_vocab_size, len(rows)).tolist()
            texts = [[*texts[row], token] for row, token in zip(rows, tokens)]
            sources = [sources[row] for row in rows]
            assert_same(cached.step(tokens, rows), all_next_scores(model, texts, sources))
        if step in (0, 3, 5):
            inputs = random_inputs(model.config, (number(5, 2) + 1).tolist(), seed + step)
            new = inputs if decoder else [[START]] * 2
            new_sources = [None] * 2 if decoder else inputs
            joined = cached.join(new, None if decoder else inputs)
            assert_same(joined, all_next_scores(model, new, new_sources))
            texts += [text for text in new for _ in range(width)]
            sources += [source for source in new_sources for _ in range(width)]


@settings(max_examples=15, phases=NO_SHRINKING)
@given(writers(), st.integers(0, 99))
def test_tokens_can_be_read_ahead_and_taken_back(model, seed):
    """From two rows of different lengths, as many as each wants."""
    inputs = random_inputs(model.config, [4, 2], seed)
    decoder = isinstance(model, CausalLM)
    texts = [list(each) if decoder else [START] for each in inputs]
    sources = [None, None] if decoder else inputs
    cached = CachedModel(model)
    cached.join(texts, None if decoder else inputs)
    for ahead, back in (([5, 6, 7], [2, 0]), ([8], [0, 1]), ([9, 10], [2, 1]), ([11, 12], [1, 2])):
        scores = cached.read(torch.tensor([ahead, ahead]))
        for n in range(len(ahead)):
            longer = [text + ahead[: n + 1] for text in texts]
            assert_same(scores[:, n], all_next_scores(model, longer, sources))
        cached.forget(back)
        texts = [text + ahead[: len(ahead) - n] for text, n in zip(texts, back)]


@settings(max_examples=15, phases=NO_SHRINKING)
@given(writers(), st.integers(0, 99))
def test_padding_is_not_kept(model, seed):
    """Of three rows one is given nothing, one a token on the left, one a token on the right."""
    inputs = random_inputs(model.config, [4, 2, 3], seed)
    decoder = isinstance(model, CausalLM)
    texts = [list(each) if decoder else [START] for each in inputs]
    sources = [None] * 3 if decoder else inputs
    cached = CachedModel(model)
    cached.join(texts, None if decoder else inputs)
    real = torch.tensor([[False, False], [False, True], [True, False]])
    scores = cached.read(torch.tensor([[7, 8]] * 3), real)
    texts[1].append(8)
    texts[2].append(7)
    expected = all_next_scores(model, texts, sources)
    assert_same(scores[[1, 2], [1, 0]], expected[1:])
    for text in texts:
        text.append(9)
    assert_same(cached.step([9] * 3), all_next_scores(model, texts, sources))
