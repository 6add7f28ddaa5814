"""What comes in is checked, why a text ends is told, and constraints always hold."""

import pytest
import torch

from clearhead.config import BeamConfig, Choice, DecodeConfig, ModelConfig
from clearhead.decoding import (
    BeamStep,
    attention_of,
    beam_search,
    begin_with,
    greedy,
    one_of,
    one_of_strings,
    sample,
    score,
    scoring,
    speculative,
    stream_text,
)
from clearhead.decoding.ranking import N_BLOCKS, argmax, top_of_each
from clearhead.decoding.sampling import draw, probabilities, uniform
from clearhead.decoding.streaming import TextStream
from clearhead.errors import ConfigError, InputError
from clearhead.models import build_model
from clearhead.text.train import train_bpe, train_characters
from tests.decoding.reference import EOS, next_scores, random_inputs, vivid
from tests.drawing import random_model

SIZES = {"vocab_size": 41, "d_model": 12, "n_heads": 2, "d_ff": 17, "n_layers": 1, "max_length": 20}
LM = vivid(random_model(ModelConfig(family="decoder", positions="learned", **SIZES)))
MT = vivid(random_model(ModelConfig(family="encoder-decoder", **SIZES), seed=3))
BOTH = pytest.mark.parametrize("model", [LM, MT], ids=["decoder", "encoder-decoder"])
CONFIG = DecodeConfig(max_new=6, eos_id=None)
PROMPT = [5, 6, 7]

# ── what comes in ───────────────────────────────────────────────────────────────────────────────


@BOTH
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], r"(prompt|source) 1 is empty, so there is nothing to continue"),
        ([0, 0, 0], r"(prompt|source) 1 is nothing but padding"),
        ([5, -1], r"token -1 at position 1 of (prompt|source) 1 is not in the vocabulary of 41"),
        ([41], r"token 41 at position 0 of (prompt|source) 1 is not in the vocabulary of 41"),
        ([5, 2**63], r"token 9223372036854775808 at position 1 of .* made by another tokenizer\?"),
        (5, r"1 is 5, not a list of token ids; give a list for each .*, such as \[\[5, 6, 7\]\]"),
        ("text", r"1 is 'text', not a list of token ids; give a list for each"),
        ([5] * 21, r"(21 tokens, more than max_length=20|make 27 tokens, more than max_length=20)"),
    ],
)
def test_an_input_that_the_model_cannot_take_is_refused_in_words(model, given, message):
    for write in (greedy, sample, beam_search):
        with pytest.raises(InputError, match=message):
            write(model, [PROMPT, given], CONFIG)


def test_inputs_that_end_before_they_begin_do_not_hide_those_behind_them():
    full, short = [5] * 20, [5, 6]
    config = DecodeConfig(max_new=2, eos_id=None, window="stop")
    rows = [full, full, short]
    best = beam_search(LM, rows, config, BeamConfig(width=1), max_sentences=2)
    assert [len(texts[0].tokens) for texts in best] == [0, 0, 2]
    assert [len(text.tokens) for text in greedy(LM, rows, config, max_rows=2)] == [0, 0, 2]
    assert len(beam_search(LM, rows, DecodeConfig(max_new=0, eos_id=None), max_sentences=1)) == 3


def test_a_draft_that_is_shorter_than_the_model_is_no_silent_end():
    short = random_model(ModelConfig(family="decoder", **{**SIZES, "max_length": 6}))
    with pytest.raises(InputError, match="make 9 tokens, more than max_length=6"):
        speculative(LM, short, [PROMPT], CONFIG)


def test_every_input_needs_a_seed_and_a_batch_a_row():
    with pytest.raises(InputError, match="input 1 has no seed, since there are only 1; give one"):
        sample(LM, [PROMPT, PROMPT], CONFIG, seed=[1])
    for decode, rows in ((greedy, "max_rows"), (beam_search, "max_sentences")):
        with pytest.raises(ConfigError, match=f"{rows}=0 must be a whole number of at least 1"):
            decode(LM, [PROMPT], CONFIG, **{rows: 0})


def test_no_inputs_give_no_outputs():
    assert greedy(LM, [], CONFIG) == [] and beam_search(MT, [], CONFIG) == []


def test_a_tensors_padding_is_not_seen():
    padded = torch.tensor([[0, 0, *PROMPT], [8, 9, 10, 11, 12]])
    together, (alone,) = greedy(LM, padded, CONFIG), greedy(LM, [PROMPT], CONFIG)
    assert together[0].tokens == alone.tokens
    assert together[0].log_probs == pytest.approx(alone.log_probs, abs=1e-12)


def test_what_the_model_wrote_is_real_even_if_it_wrote_the_pad_id():
    model = vivid(random_model(ModelConfig(family="decoder", output_bias=True, **SIZES)))
    with torch.no_grad():
        model.output.bias[0] += 3.0
    (output,) = greedy(model, [PROMPT], DecodeConfig(max_new=12, eos_id=None))
    assert 0 in output.tokens
    text = list(PROMPT)
    for token in output.tokens:
        assert int(next_scores(model, text, None).argmax()) == token
        text.append(token)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (DecodeConfig(eos_id=41, max_new=3), "eos_id=41 is not in the vocabulary of 41"),
        (DecodeConfig(start_id=99, max_new=3), "start_id=99 is not in the vocabulary of 41"),
        (DecodeConfig(start_id=None, max_new=3), "start_id=None leaves an encoder-decoder nothing"),
        (DecodeConfig(window="slide", max_new=3), "window='slide' is for a decoder alone"),
    ],
)
def test_a_setting_that_does_not_fit_the_model_is_refused(config, message):
    with pytest.raises(ConfigError, match=message):
        greedy(MT, [PROMPT], config)


def test_an_encoder_generates_nothing():
    model = random_model(ModelConfig(family="encoder", **SIZES))
    with pytest.raises(InputError, match="an encoder cannot generate text; use a decoder or"):
        greedy(model, [PROMPT], CONFIG)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Choice(temperature=-1), "temperature=-1 must be at least 0; use 0 for"),
        (lambda: Choice(top_k=0), "top_k=0 must be at least 1"),
        (lambda: Choice(top_p=0.0), "top_p=0.0 must be above 0 and at most 1"),
        (lambda: Choice(min_p=1.5), "min_p=1.5 must be between 0 and 1"),
        (lambda: Choice(repetition_penalty=0.0), "repetition_penalty=0.0 must be from 0.001"),
        (lambda: BeamConfig(width=2, n_best=3), "n_best=3 must be at most width=2; try width=3"),
        (lambda: BeamConfig(width=4, groups=3), "groups=3 must divide width=4"),
        (lambda: BeamConfig(width=4, groups=2), "diversity=0.0 lets all groups=2 find the same"),
        (lambda: BeamConfig(alpha=-1.0), "alpha=-1.0 must be from 0 to 10"),
        (lambda: BeamConfig(alpha=200.0), "alpha=200.0 must be from 0 to 10"),
        (lambda: BeamConfig(patience=0.0), "patience=0.0 must be above 0"),
        (lambda: BeamConfig(diversity=-1.0), "diversity=-1.0 must be at least 0"),
        (lambda: DecodeConfig(max_new=-1), "max_new=-1 must be a whole number of at least 0"),
        (
            lambda: DecodeConfig(window="glide"),
            "window='glide' is not a valid choice; did you mean 'sl",
        ),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_a_draft_of_another_vocabulary_is_refused():
    other = random_model(ModelConfig(family="decoder", **{**SIZES, "vocab_size": 43}))
    with pytest.raises(InputError, match="the draft has vocab_size=43 and the model 41"):
        speculative(LM, other, [PROMPT], CONFIG)


# ── why it ends ─────────────────────────────────────────────────────────────────────────────────


@BOTH
def test_every_reason_to_stop_is_reached_and_told(model):
    free = greedy(model, [PROMPT], CONFIG)[0]
    assert (free.stop, len(free.tokens)) == ("length", 6)
    ended = greedy(model, [PROMPT], DecodeConfig(max_new=6, eos_id=free.tokens[2]))[0]
    first = free.tokens.index(free.tokens[2])
    assert (ended.stop, ended.tokens) == ("end", free.tokens[: first + 1])
    full = greedy(model, [PROMPT], DecodeConfig(max_new=99, eos_id=None, window="stop"))[0]
    given = len(PROMPT) if model is LM else 1
    assert (full.stop, len(full.tokens)) == ("window", 20 - given)
    stuck = greedy(model, [PROMPT], CONFIG, constraint=one_of([[8, 9]], None))[0]
    assert (stuck.stop, stuck.tokens) == ("constraint", [8, 9])


@BOTH
def test_beams_and_speculation_stop_for_the_same_reasons(model):
    window = DecodeConfig(max_new=99, eos_id=None, window="stop")
    given = len(PROMPT) if model is LM else 1
    for output in (
        beam_search(model, [PROMPT], window, BeamConfig(width=2))[0][0],
        speculative(model, model, [PROMPT], window)[0],
    ):
        assert (output.stop, len(output.tokens)) == ("window", 20 - given)
    stuck = beam_search(model, [PROMPT], CONFIG, constraint=one_of([[8, 9], [8, 10, 11]], None))[0]
    assert (stuck[0].stop, stuck[0].tokens[0]) == ("constraint", 8)
    nothing = DecodeConfig(max_new=0)
    for output in (
        greedy(model, [PROMPT], nothing)[0],
        beam_search(model, [PROMPT], nothing)[0][0],
        speculative(model, model, [PROMPT], nothing)[0],
    ):
        assert (output.tokens, output.stop, output.score) == ([], "length", 0.0)


@BOTH
def test_a_draft_may_run_further_than_the_model_reads(model):
    config = DecodeConfig(max_new=15, eos_id=None, window="stop")
    (found,) = speculative(model, model, [PROMPT], config, n_ahead=24)
    assert len(found.tokens) == 15


def test_rows_of_unequal_length_decode_in_mixed_precision():
    model = build_model(ModelConfig(family="decoder", **SIZES)).eval()
    with torch.autocast("cpu", torch.bfloat16):
        found = greedy(model, [PROMPT, [8]], CONFIG)
    assert [len(output.tokens) for output in found] == [6, 6]


def test_a_batch_that_is_scored_is_no_wider_than_its_limit(monkeypatch: pytest.MonkeyPatch):
    batches: list[list[tuple[list[int], ...]]] = []
    one_batch = scoring._score_batch

    def noted(model, pairs):
        batches.append(list(pairs))
        return one_batch(model, pairs)

    monkeypatch.setattr(scoring, "_score_batch", noted)
    sources = [[5] * n for n in (18, 1, 17, 2)]
    assert list(map(len, score(MT, sources, [[6]] * 4, max_tokens=36))) == [1] * 4
    assert [[len(source) for source, *_ in pairs] for pairs in batches] == [[18, 17], [2, 1]]


@BOTH
def test_a_draft_that_runs_over_the_window_changes_neither_its_text_nor_its_neighbours(model):
    config = DecodeConfig(max_new=15, eos_id=None, window="stop")
    inputs = random_inputs(model.config, [14, 3, 9], seed=2)
    draft = vivid(random_model(model.config, seed=8))
    together = speculative(model, draft, inputs, config, seed=[5, 6, 7])
    for given, seed, output in zip(inputs, [5, 6, 7], together):
        (alone,) = speculative(model, draft, [given], config, seed=[seed])
        assert (alone.tokens, alone.stop) == (output.tokens, output.stop)
        (rescored,) = score(model, [given], [output.tokens])
        assert output.log_probs == pytest.approx(rescored, abs=1e-9)
    n_given = [14, 3, 9] if model is LM else [1, 1, 1]
    assert [len(output.tokens) for output in together] == [min(15, 20 - n) for n in n_given]


def test_a_window_that_slides_forgets_its_older_half_and_goes_on():
    config = DecodeConfig(max_new=32, eos_id=None, window="slide")
    inputs = random_inputs(LM.config, [3, 7], seed=1)
    for prompt, output in zip(inputs, greedy(LM, inputs, config)):
        assert len(output.tokens) == 32
        context = list(prompt)
        for token in output.tokens:
            if len(context) > 20:
                context = context[-10:]
            assert int(next_scores(LM, context, None).argmax()) == token
            context.append(token)


# ── constraints ─────────────────────────────────────────────────────────────────────────────────


def without_the_end(texts: list[list[int]]) -> list[list[int]]:
    return [[3 if token == EOS else token for token in text] for text in texts]


@BOTH
@pytest.mark.parametrize("seed", range(4))
def test_constraints_hold_always(model, seed):
    texts = without_the_end(random_inputs(model.config, [1, 3, 3, 5], seed))
    only = one_of(texts, EOS)
    config = DecodeConfig(max_new=6, eos_id=EOS)
    whole = [[*text, EOS] for text in texts]
    outputs = [
        *sample(model, [PROMPT] * 6, config, seed=seed, constraint=only),
        *greedy(model, [PROMPT], config, constraint=only),
        *beam_search(model, [PROMPT], config, BeamConfig(width=4, n_best=4), constraint=only)[0],
    ]
    assert all(output.tokens in whole and output.stop == "end" for output in outputs)
    even = sample(
        model,
        [PROMPT] * 3,
        config,
        seed=seed,
        constraint=lambda new: range(0, 41, 2 + len(new)),
    )
    for output in even:
        assert all(token % (2 + place) == 0 for place, token in enumerate(output.tokens))


@BOTH
def test_the_best_allowed_text_is_found_and_scored_as_the_model_would(model):
    drawn = without_the_end(random_inputs(model.config, [2, 3, 4, 4, 1], seed=9))
    texts = [[*text, EOS] for text in drawn]
    beam = BeamConfig(width=5, n_best=5, length_penalty="none", patience=None)
    config = DecodeConfig(max_new=6, eos_id=EOS)
    only = one_of(drawn, EOS)
    (found,) = beam_search(model, [PROMPT], config, beam, constraint=only)
    scored = score(model, [PROMPT] * 5, texts)
    ranked = sorted(zip(texts, map(sum, scored)), key=lambda pair: -pair[1])
    assert [output.tokens for output in found] == [text for text, _ in ranked]
    assert [output.score for output in found] == pytest.approx([s for _, s in ranked], abs=1e-9)


@BOTH
def test_a_forced_prefix_begins_every_text_and_counts_in_its_score(model):
    constraint = begin_with([9, 8, 7])
    outputs = [
        greedy(model, [PROMPT], CONFIG, constraint=constraint)[0],
        sample(model, [PROMPT], CONFIG, constraint=constraint)[0],
        beam_search(model, [PROMPT], CONFIG, constraint=constraint)[0][0],
    ]
    for output in outputs:
        assert output.tokens[:3] == [9, 8, 7] and len(output.tokens) == 6
        (rescored,) = score(model, [PROMPT], [output.tokens])
        assert output.log_probs == pytest.approx(rescored, abs=1e-9)


def test_a_constraint_outside_the_vocabulary_or_without_a_text_is_refused():
    with pytest.raises(InputError, match="the constraint allows tokens 3 to 41, but the vocab"):
        greedy(LM, [PROMPT], CONFIG, constraint=lambda _: [3, 41])
    with pytest.raises(InputError, match="the constraint allows no text"):
        one_of([], None)


# ── sampling ────────────────────────────────────────────────────────────────────────────────────


def test_each_rule_of_a_choice_leaves_what_it_says():
    scores = torch.log(torch.tensor([[0.4, 0.3, 0.2, 0.06, 0.04]], dtype=torch.float64))

    def left(**rules) -> list[float]:
        return probabilities(scores, Choice(**rules), None)[0].tolist()

    assert left() == pytest.approx([0.4, 0.3, 0.2, 0.06, 0.04])
    assert left(top_k=2) == pytest.approx([4 / 7, 3 / 7, 0, 0, 0])
    assert left(top_p=0.75) == pytest.approx([4 / 9, 3 / 9, 2 / 9, 0, 0])
    assert left(min_p=0.2) == pytest.approx([4 / 9, 3 / 9, 2 / 9, 0, 0])
    assert left(temperature=0) == [1, 0, 0, 0, 0]
    sharp = [p**2 for p in (0.4, 0.3, 0.2, 0.06, 0.04)]
    assert left(temperature=0.5) == pytest.approx([p / sum(sharp) for p in sharp])
    penalised = probabilities(scores, Choice(repetition_penalty=2.0), [[0, 3]])[0]
    squared = torch.tensor([0.16, 0.3, 0.2, 0.0036, 0.04], dtype=torch.float64)
    assert penalised.tolist() == pytest.approx((squared / squared.sum()).tolist())


def test_numbers_in_0_1_fall_where_the_chances_say():
    chances = torch.tensor([[0.0, 0.25, 0.0, 0.75, 0.0]], dtype=torch.float64)
    found = [draw(chances, [u])[0] for u in (0.0, 0.2499, 0.25, 0.5, 1 - 2**-53)]
    assert found == [1, 1, 3, 3, 3]
    numbers = [uniform(7, place, "token") for place in range(4000)]
    assert all(0 <= u < 1 for u in numbers) and len(set(numbers)) == 4000
    assert sum(numbers) / 4000 == pytest.approx(0.5, abs=0.02)


def test_a_samples_shares_are_the_models_chances():
    outputs = sample(LM, [PROMPT] * 4000, DecodeConfig(max_new=1, eos_id=None), max_rows=1000)
    chances = next_scores(LM, PROMPT, None).softmax(0)
    for token in chances.topk(3).indices.tolist():
        share = sum(output.tokens == [token] for output in outputs) / 4000
        assert share == pytest.approx(float(chances[token]), abs=0.03)


# ── the largest scores ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("vocab", [7, 2 * N_BLOCKS, 5 * N_BLOCKS + 3])
@pytest.mark.parametrize("levels", [10**9, 4])
def test_the_largest_are_found_in_order_and_ties_go_to_the_lowest_index(vocab, levels):
    """With four levels nearly everything is a tie; the second group has four in any case."""
    generator = torch.Generator().manual_seed(vocab)
    scores = torch.randint(levels, (3, 4, vocab), generator=generator).double() / levels
    scores[1] = (scores[1] * 3).round()
    offsets = torch.randint(levels, (3, 4), generator=generator).double() / levels
    values, indices = top_of_each(scores, offsets, 6)
    for group in range(3):
        everything = (scores[group] + offsets[group][:, None]).flatten().tolist()
        expected = sorted(range(4 * vocab), key=lambda i: (-everything[i], i))[:6]
        assert indices[group].tolist() == expected
        assert values[group].tolist() == [everything[i] for i in expected]
    flat = scores.flatten(0, 1)
    assert argmax(flat) == [row.index(max(row)) for row in flat.tolist()]


# ── text ────────────────────────────────────────────────────────────────────────────────────────

TEXT = "Ünïcödé 你好，世界 👩‍👩‍👧 naïve\r\n\tend"


@pytest.mark.parametrize("train", [train_bpe, train_characters])
def test_a_stream_never_shows_half_a_character_and_loses_nothing(train):
    tokenizer = train(["abc"], 270 if train is train_bpe else None)
    ids = tokenizer.encode(TEXT)
    assert len(ids) > len(TEXT)  # characters fall into several tokens
    stream = TextStream(tokenizer)
    pieces = [stream.push(token) for token in [1, *ids, 2]]
    assert "\ufffd" not in "".join(pieces)
    assert "" in pieces  # something was kept back
    assert "".join(pieces) + stream.rest() == TEXT
    broken = TextStream(tokenizer)
    for token in ids[: ids.index(tokenizer.encode("你")[0]) + 1]:
        broken.push(token)
    assert broken.rest() == "\ufffd"


def test_streamed_text_is_the_text_that_greedy_writes():
    tokenizer = train_bpe([TEXT], 280)
    sizes = {**SIZES, "vocab_size": tokenizer.vocab_size}
    model = vivid(random_model(ModelConfig(family="decoder", **sizes), seed=5))
    prompt = tokenizer.encode("end")
    config = DecodeConfig(max_new=12, eos_id=tokenizer.eos_id)
    pieces = list(stream_text(model, tokenizer, prompt, config))
    assert "".join(pieces) == tokenizer.decode(greedy(model, [prompt], config)[0].tokens)
    answers = one_of_strings(["yes", "no"], tokenizer)
    assert "".join(stream_text(model, tokenizer, prompt, config, constraint=answers)) in (
        "yes",
        "no",
    )


# ── what else is returned ───────────────────────────────────────────────────────────────────────


@BOTH
def test_the_attention_of_a_text_can_be_looked_at(model):
    (output,) = greedy(model, [PROMPT], CONFIG)
    recorder = attention_of(model, PROMPT, output)
    role, n_keys = ("causal", len(PROMPT) + 5) if model is LM else ("cross", len(PROMPT))
    weights = recorder[role, 0]
    assert weights.shape[-1] == n_keys
    assert torch.allclose(weights.sum(-1), torch.ones((), dtype=weights.dtype))


@BOTH
def test_whoever_watches_a_beam_sees_every_branch_and_what_became_of_it(model):
    steps: list[BeamStep] = []
    config, beam = DecodeConfig(max_new=4, eos_id=None), BeamConfig(width=3, n_best=3)
    (found,) = beam_search(model, [PROMPT], config, beam, watch=steps.append)
    assert [step.length for step in steps] == [1, 2, 3, 4]
    paths: list[tuple[list[int], float]] = [([], 0.0)]
    finished: list[list[int]] = []
    for step in steps:
        kept: list[tuple[list[int], float]] = []
        totals = [branch.total for branch in step.branches]
        assert totals == sorted(totals, reverse=True)
        for branch in step.branches:
            tokens, total = paths[branch.parent]
            assert branch.total == pytest.approx(total + branch.log_prob, abs=1e-12)
            if branch.fate == "kept":
                assert branch.slot == len(kept)
                kept.append(([*tokens, branch.token], branch.total))
            elif branch.fate == "finished":
                finished.append([*tokens, branch.token])
        assert {branch.fate for branch in step.branches} <= {"kept", "finished", "dropped"}
        paths = kept
    assert sorted(finished) == sorted(text.tokens for text in found)
    assert any(branch.fate == "dropped" for step in steps for branch in step.branches)


def test_diverse_groups_begin_differently():
    config = DecodeConfig(max_new=3, eos_id=None)
    beam = BeamConfig(width=4, n_best=4, groups=4, diversity=100.0, patience=None)
    (found,) = beam_search(LM, [PROMPT], config, beam)
    assert len({output.tokens[0] for output in found}) == 4


def test_the_lowest_temperature_takes_the_likeliest_token():
    scores = torch.tensor([[1.0, 5.0, -torch.inf, 5.0 - 1e-6]])
    for temperature in (5e-324, 1e-308, 1e-30):
        chances = probabilities(scores, Choice(temperature=temperature), None)[0]
        assert chances.tolist() == [0, 1, 0, 0]
