"""Every strategy, over random tiny models of every configuration, against the slow way."""

import math
from collections import Counter
from functools import partial
from unittest.mock import patch

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from clearhead.config import ModelConfig
from clearhead.decoding import (
    BeamConfig,
    BeamStep,
    Choice,
    DecodeConfig,
    beam_search,
    greedy,
    sample,
    score,
    speculative,
)
from clearhead.decoding.hypotheses import SentenceBeam
from clearhead.decoding.sampling import probabilities
from clearhead.models import CausalLM
from tests.decoding.reference import (
    EOS,
    NO_SHRINKING,
    all_texts,
    next_scores,
    random_inputs,
    score_of,
    uncached,
    vivid,
    writers,
)
from tests.drawing import random_model

SHORT = DecodeConfig(max_new=7, eos_id=EOS)
PENALTIES = [("none", 1.0), ("average", 1.0), ("average", 0.6), ("gnmt", 0.6), ("gnmt", 2.0)]
CHOICES = [
    Choice(),
    Choice(temperature=0.7, top_k=9),
    Choice(temperature=1.4, top_p=0.8, min_p=0.01),
    Choice(repetition_penalty=1.3, top_k=20, top_p=0.9),
]
lengths = st.lists(st.integers(1, 6), min_size=1, max_size=4)
seeds = st.integers(0, 999)


@st.composite
def beams(draw: st.DrawFn) -> BeamConfig:
    penalty, alpha = draw(st.sampled_from(PENALTIES))
    width = draw(st.sampled_from([1, 2, 3, 4]))
    groups = draw(st.sampled_from([n for n in (1, 2) if width % n == 0]))
    return BeamConfig(
        width=width,
        n_best=draw(st.integers(1, width)),
        length_penalty=penalty,
        alpha=alpha,
        patience=draw(st.sampled_from([None, 1.0, 2.0])),
        groups=groups,
        diversity=0.0 if groups == 1 else draw(st.sampled_from([0.1, 0.5])),
    )


def same(one, other, limit: float = 1e-9) -> bool:
    return (
        one.tokens == other.tokens
        and one.stop == other.stop
        and abs(one.score - other.score) < limit
        and all(abs(a - b) < limit for a, b in zip(one.log_probs, other.log_probs))
    )


def can_tell_texts_apart(model) -> bool:
    """Without residual connections, a decoder knows of its own text only through the weights of its
    attention to the source, and these random models' are even: they say the same at every step.
    Texts with the same tokens in another order are then equally likely, and rounding decides."""
    return model.config.residual or isinstance(model, CausalLM)


@settings(max_examples=10, phases=NO_SHRINKING)
@given(writers(), lengths, seeds)
def test_greedy_with_a_cache_writes_what_it_writes_without(model, lengths, seed):
    inputs = random_inputs(model.config, lengths, seed)
    with uncached():
        expected = greedy(model, inputs, SHORT)
    assert all(map(same, greedy(model, inputs, SHORT), expected))


@settings(max_examples=10, phases=NO_SHRINKING)
@given(writers(), lengths, seeds, st.sampled_from(CHOICES))
def test_sampling_with_a_cache_draws_what_it_draws_without(model, lengths, seed, choice):
    inputs = random_inputs(model.config, lengths, seed)
    cached = sample(model, inputs, SHORT, choice, seed=seed)
    with uncached():
        expected = sample(model, inputs, SHORT, choice, seed=seed)
    assert all(map(same, cached, expected))


@settings(max_examples=10, phases=NO_SHRINKING)
@given(writers(), lengths, seeds, beams())
def test_beam_search_with_a_cache_finds_what_it_finds_without(model, lengths, seed, beam):
    assume(can_tell_texts_apart(model))
    inputs = random_inputs(model.config, lengths, seed)
    config = DecodeConfig(max_new=5, eos_id=EOS)
    cached = beam_search(model, inputs, config, beam)
    with uncached():
        expected = beam_search(model, inputs, config, beam)
    assert [len(texts) for texts in cached] == [len(texts) for texts in expected]
    for one, other in zip(cached, expected):
        shown = [[(text.tokens, text.score) for text in texts] for texts in (one, other)]
        assert all(map(same, one, other)), shown


@settings(max_examples=10, phases=NO_SHRINKING)
@given(writers(), seeds, st.sampled_from([Choice(temperature=0), *CHOICES]))
def test_speculation_claims_the_scores_of_one_pass_and_is_greedy_at_temperature_0(
    model, seed, choice
):
    inputs = random_inputs(model.config, [3, 5], seed)
    draft = vivid(random_model(model.config, seed=seed + 1))
    ahead = speculative(model, draft, inputs, SHORT, choice, seed=seed, n_ahead=3)
    for given_ids, output in zip(inputs, ahead):
        claimed = score(model, [given_ids], [output.tokens])[0]
        assert max(abs(a - b) for a, b in zip(claimed, output.log_probs)) < 1e-9
    if choice.temperature == 0:
        assert [o.tokens for o in ahead] == [o.tokens for o in greedy(model, inputs, SHORT)]


@settings(max_examples=10, phases=NO_SHRINKING)
@given(writers(), lengths, seeds, st.sampled_from(PENALTIES))
def test_a_beam_of_one_is_greedy(model, lengths, seed, penalty):
    inputs = random_inputs(model.config, lengths, seed)
    beam = BeamConfig(width=1, length_penalty=penalty[0], alpha=penalty[1])
    for (found,), expected in zip(
        beam_search(model, inputs, SHORT, beam), greedy(model, inputs, SHORT)
    ):
        assert found.tokens == expected.tokens and found.stop == expected.stop
        assert found.score == pytest.approx(score_of(expected.log_probs, beam), abs=1e-9)


@settings(max_examples=10, phases=NO_SHRINKING)
@given(writers(), lengths, seeds, beams())
def test_a_claimed_score_is_the_score_of_the_text(model, lengths, seed, beam):
    inputs = random_inputs(model.config, lengths, seed)
    for given_ids, texts in zip(inputs, beam_search(model, inputs, SHORT, beam)):
        rescored = score(model, [given_ids] * len(texts), [text.tokens for text in texts])
        for text, log_probs in zip(texts, rescored):
            assert max(abs(a - b) for a, b in zip(text.log_probs, log_probs)) < 1e-9
            assert abs(text.score - score_of(log_probs, beam)) < 1e-9
            assert text.stop == ("end" if text.tokens[-1] == EOS else "length")


def tiny(family: str, seed: int, vocab_size: int = 5):
    config = ModelConfig(
        family=family, vocab_size=vocab_size, d_model=8, n_heads=2, d_ff=12, n_layers=1,
        max_length=16, pad_id=0, positions="learned", output_bias=True,
    )  # fmt: skip
    return vivid(vivid(random_model(config, seed)))


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("family", ["decoder", "encoder-decoder"])
@pytest.mark.parametrize("patience", [None, 1.0])
def test_a_beam_that_is_wide_enough_finds_the_best_of_all_texts(family, penalty, patience):
    for seed in range(2):
        model = tiny(family, seed)
        (given_ids,) = random_inputs(model.config, [3], seed)
        texts = list(all_texts(range(5), EOS, longest=4))
        beam = BeamConfig(
            width=4**4, n_best=5, length_penalty=penalty[0], alpha=penalty[1], patience=patience
        )
        scored = score(model, [given_ids] * len(texts), texts)
        ranked = sorted(zip(texts, scored), key=lambda pair: -score_of(pair[1], beam))
        (found,) = beam_search(model, [given_ids], DecodeConfig(max_new=4, eos_id=EOS), beam)
        assert [text.tokens for text in found] == [text for text, _ in ranked[:5]]
        for text, (_, log_probs) in zip(found, ranked):
            assert abs(text.score - score_of(log_probs, beam)) < 1e-9


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("n_best", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_stopping_early_never_changes_what_is_found(penalty, n_best):
    """The same search with and without the proof; and the proof must have saved something."""
    beam = BeamConfig(
        width=3, n_best=n_best, length_penalty=penalty[0], alpha=penalty[1], patience=None
    )
    config = DecodeConfig(max_new=12, eos_id=EOS)
    saved = 0
    for seed in range(8):
        model = tiny("decoder", seed, vocab_size=7)
        inputs = random_inputs(model.config, [2, 3], seed)
        steps: list[BeamStep] = []
        search = partial(beam_search, model, inputs, config, beam, watch=steps.append)
        early, n_early = search(), len(steps)
        with patch.object(SentenceBeam, "is_settled", lambda self, _: not any(self.slots)):
            whole = search()
        for one, other in zip(early, whole):
            assert [t.tokens for t in one] == [t.tokens for t in other]
        saved += len(steps) - 2 * n_early
    if n_best == 1:  # with three to be sure of, the bound is rarely met
        assert saved > 0


@settings(max_examples=5, phases=NO_SHRINKING)
@given(writers(), st.permutations(range(4)), seeds, beams())
def test_a_sequence_alone_is_the_sequence_in_any_batch(model, order, seed, beam):
    assume(can_tell_texts_apart(model))
    inputs = random_inputs(model.config, [1, 4, 2, 6], seed)
    mixed = [inputs[i] for i in order]
    choice = CHOICES[seed % len(CHOICES)]
    # Two rows for four texts: they leave and join in the middle of the others' texts.
    strategies = {
        "greedy": lambda given, of: greedy(model, given, SHORT, max_rows=2),
        "sample": lambda given, of: sample(
            model, given, SHORT, choice, seed=[10 + i for i in of], max_rows=2
        ),
        "beam": lambda given, of: [
            texts[0] for texts in beam_search(model, given, SHORT, beam, max_sentences=2)
        ],
    }
    for write in strategies.values():
        together = write(mixed, order)
        for place, index in enumerate(order):
            (alone,) = write([inputs[index]], [index])
            assert same(alone, together[place])


@pytest.mark.parametrize(
    ("choice", "n"), [(Choice(), 20_000), (Choice(temperature=0.8, top_k=5, top_p=0.9), 10_000)]
)
def test_speculation_draws_from_the_large_models_own_distribution(choice, n):
    """Chi-square over all texts of two tokens: a draft that is often wrong leaves no trace in what
    is written; and the test would see one."""
    model, draft = tiny("decoder", 3, 6), tiny("decoder", 8, 6)
    config = DecodeConfig(max_new=2, eos_id=EOS)
    expected = exact_chances(model, [3, 4], choice, 2)
    wrong = exact_chances(draft, [3, 4], choice, 2)
    outputs = speculative(
        model, draft, [[3, 4]] * n, config, choice, seed=5, n_ahead=1, max_rows=2500
    )
    found = Counter(tuple(output.tokens) for output in outputs)
    assert chi_square(found, expected, n) < chi_square_limit(len(expected))
    assert chi_square(found, wrong, n) > chi_square_limit(len(wrong))


def exact_chances(model, prompt, choice, n_tokens) -> dict[tuple[int, ...], float]:
    """Of every text, by multiplying what each token is drawn with."""
    texts: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(n_tokens):
        longer: dict[tuple[int, ...], float] = {}
        for text, chance in texts.items():
            if text and text[-1] == EOS:
                longer[text] = chance
                continue
            scores = next_scores(model, [*prompt, *text], None)[None]
            row = probabilities(scores, choice, [[*prompt, *text]])[0].tolist()
            longer |= {(*text, token): chance * p for token, p in enumerate(row) if p > 0}
        texts = longer
    return texts


def chi_square(found, expected, n: int) -> float:
    if any(expected.get(text, 0) == 0 for text in found):
        return math.inf
    return sum((found.get(t, 0) - n * p) ** 2 / (n * p) for t, p in expected.items())


def chi_square_limit(n_classes: int) -> float:
    """Beyond which one in 10⁵ true distributions falls (Wilson and Hilferty's approximation)."""
    df = n_classes - 1
    return df * (1 - 2 / (9 * df) + 4.265 * math.sqrt(2 / (9 * df))) ** 3


def test_decoding_leaves_the_mode_and_every_random_generator_as_they_were():
    model = random_model(
        ModelConfig(family="encoder-decoder", vocab_size=41, d_model=12, n_heads=2, d_ff=17,
                    n_layers=1, max_length=29, p_dropout=0.5)
    ).train()  # fmt: skip
    model.decoder.norm.eval()
    torch.manual_seed(7)
    before = torch.get_rng_state()
    inputs = [[3, 4, 5], [6]]
    runs = [
        lambda: greedy(model, inputs, SHORT),
        lambda: sample(model, inputs, SHORT),
        lambda: beam_search(model, inputs, SHORT),
        lambda: speculative(model, model, inputs, SHORT),
    ]
    for run in runs:
        assert run() == run()
        assert model.training and model.encoder.training and not model.decoder.norm.training
        assert torch.equal(torch.get_rng_state(), before)
        assert not torch.is_inference_mode_enabled()
