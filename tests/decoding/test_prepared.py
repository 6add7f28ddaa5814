"""The model laid out for writing is still the model."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.decoding import prepare
from clearhead.models import CausalLM
from tests.decoding.reference import (
    NO_SHRINKING,
    START,
    all_next_scores,
    next_scores,
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
    state = prepare(model).begin(reserve=3)  # less than is needed, so that it has to grow
    texts = [list(each) if decoder else [START] for each in inputs]
    sources = [None] * len(inputs) if decoder else inputs
    scores = state.join(texts, None if decoder else inputs)[:, 0]
    generator = torch.Generator().manual_seed(seed)
    for _ in range(6):
        assert_same(scores, all_next_scores(model, texts, sources))
        tokens = torch.randint(
            model.config.output_vocab_size, (len(inputs), 1), generator=generator
        )
        for text, token in zip(texts, tokens.flatten().tolist()):
            text.append(token)
        scores = state.advance(tokens)[:, 0]


@settings(max_examples=15, phases=NO_SHRINKING)
@given(writers(), st.integers(0, 999))
def test_groups_that_fork_join_and_leave_score_as_each_text_does_alone(model, seed):
    """A random life of a batch: hypotheses fork, groups leave, others join, memory is packed."""
    generator = torch.Generator().manual_seed(seed)

    def number(below: int, *shape: int) -> torch.Tensor:
        return torch.randint(below, shape, generator=generator)

    decoder = isinstance(model, CausalLM)
    state = prepare(model).begin(reserve=2)
    texts: list[list[list[int]]] = []
    sources: list[list[int] | None] = []
    width = 1

    def check(scores: torch.Tensor) -> None:
        flat = [text for group in texts for text in group]
        of_each = [source for group, source in zip(texts, sources) for _ in group]
        assert_same(scores.flatten(0, 1), all_next_scores(model, flat, of_each))

    for step in range(7):
        if step in (0, 3, 5):
            lengths = (number(5, 2) + 1).tolist()
            inputs = random_inputs(model.config, lengths, seed + step)
            new = inputs if decoder else [[START]] * 2
            joined = state.join(new, None if decoder else inputs)
            kept_texts, kept_sources, texts, sources = (
                texts,
                sources,
                [[t] for t in new],
                ([None] * 2 if decoder else inputs),
            )
            check(joined)
            texts = kept_texts + [group * width for group in texts]
            sources = kept_sources + list(sources)
        if step == 4:
            groups = [len(texts) - 1, 0]
            state.keep(groups)
            texts, sources = [texts[g] for g in groups], [sources[g] for g in groups]
        parents = number(width, len(texts), 3)
        tokens = number(model.config.output_vocab_size, len(texts), 3)
        width = 3
        texts = [
            [group[p] + [t] for p, t in zip(row, new)]
            for group, row, new in zip(texts, parents.tolist(), tokens.tolist())
        ]
        check(state.advance(tokens, parents))


@settings(max_examples=15, phases=NO_SHRINKING)
@given(writers(), st.integers(0, 99))
def test_a_chain_can_be_read_ahead_and_taken_back(model, seed):
    (given_ids,) = random_inputs(model.config, [4], seed)
    decoder = isinstance(model, CausalLM)
    text, source = (list(given_ids), None) if decoder else ([START], given_ids)
    state = prepare(model).begin(reserve=2)
    state.join([text], None if decoder else [given_ids])
    for ahead, back in (([5, 6, 7], 2), ([8], 0), ([9, 10], 2), ([11, 12, 13, 14], 1)):
        scores = state.extend(torch.tensor([ahead]))[0]
        for n, row in enumerate(scores):
            expected = next_scores(model, text + ahead[: n + 1], source)
            assert_same(row, expected)
        state.forget([back])
        text = text + ahead[: len(ahead) - back]
