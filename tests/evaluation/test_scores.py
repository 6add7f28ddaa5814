"""Perplexity counts every token once; translation scores are sacrebleu's."""

import math
import random
import statistics
from unittest.mock import patch

import pytest
import torch

from clearhead.config import BeamConfig, ModelConfig, TranslateConfig
from clearhead.decoding import score
from clearhead.decoding.codec import Codec
from clearhead.decoding.text import OwnEngine
from clearhead.errors import ClearheadError, InputError
from clearhead.evaluation.perplexity import perplexity, windows
from clearhead.evaluation.translation import (
    compare_translations,
    translate_lines,
    translation_scores,
)
from clearhead.interop.model_folder import TokenIds
from clearhead.text.train import train_bpe
from tests.drawing import random_model

TOKENIZER = train_bpe(["the dog runs on the grass", "der Hund"] * 9, 290)
CODEC = Codec(source=TOKENIZER, target=TOKENIZER, ids=TokenIds())
SIZES = {"vocab_size": TOKENIZER.vocab_size, "d_model": 12, "n_heads": 2, "d_ff": 17, "n_layers": 1}
TEXT = "the dog runs on the green grass, 你好"


@pytest.mark.parametrize("n_tokens", [1, 2, 7, 8, 9, 30])
@pytest.mark.parametrize("stride", [1, 3, 8])
def test_windows_score_every_token_once_with_enough_before_it(n_tokens, stride):
    found = list(windows(n_tokens, 8, stride))
    assert [place for _, first, last in found for place in range(first, last)] == [
        *range(1, n_tokens)
    ]
    for start, first, last in found:
        assert last - 1 - start <= 8  # what is read fits the window
        assert start == 0 or first - start >= 8 - stride + 1


def test_perplexity_is_the_exponential_of_the_mean_surprise():
    model = random_model(ModelConfig(family="decoder", max_length=64, **SIZES))
    ids = [1, *TOKENIZER.encode(TEXT)]
    (log_probs,) = score(model, [ids[:1]], [ids[1:]])
    found = perplexity(model, TOKENIZER, [TEXT], bos_id=1)
    assert found.n_tokens == len(ids) - 1
    assert (found.n_bytes, found.n_words) == (len(TEXT.encode()), 8)
    assert found.n_characters == len(TEXT)
    assert found.nats == pytest.approx(-math.fsum(log_probs))
    assert found.per_token == pytest.approx(math.exp(found.nats / found.n_tokens))
    assert found.per_byte == pytest.approx(2**found.bits_per_byte)
    # Scored token by token, with the longest past that fits: what a stride of 1 promises.
    short = random_model(ModelConfig(family="decoder", max_length=9, **SIZES))
    pieces = [(ids[max(0, n - 9) : n], ids[n : n + 1]) for n in range(1, len(ids))]
    one_by_one = score(short, [given for given, _ in pieces], [wanted for _, wanted in pieces])
    slid = perplexity(short, TOKENIZER, [TEXT], bos_id=1, stride=1)
    assert slid.nats == pytest.approx(-math.fsum(x for (x,) in one_by_one))


def test_joined_texts_are_one_stream_with_an_end_behind_each():
    model = random_model(ModelConfig(family="decoder", max_length=64, **SIZES))
    texts, end = ["the dog", "runs 你好"], TOKENIZER.eos_id
    ids = [token for text in texts for token in (*TOKENIZER.encode(text), end)]
    (log_probs,) = score(model, [ids[:1]], [ids[1:]])
    found = perplexity(model, TOKENIZER, texts, eos_id=end, joined=True)
    assert found.nats == pytest.approx(-math.fsum(log_probs))
    given = len(TOKENIZER.decode(ids[:1]).encode())
    assert found.n_bytes == len("the dog\nruns 你好\n".encode()) - given
    assert found.n_tokens == len(ids) - 1
    assert TOKENIZER.decode(ids[:1]) == "the" and found.n_words == 3


def test_a_model_that_knows_nothing_is_as_surprised_per_word_as_per_token_of_one_word():
    model = random_model(ModelConfig(family="decoder", max_length=64, **SIZES))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert [TOKENIZER.decode([each]) for each in TOKENIZER.encode("the dog")] == ["the", " dog"]
    for how in ({}, {"bos_id": 1}):
        found = perplexity(model, TOKENIZER, ["the dog"] * 5, **how)
        assert found.n_words == found.n_tokens == (10 if how else 5)
        assert found.per_word == pytest.approx(TOKENIZER.vocab_size)


@pytest.mark.parametrize(
    ("texts", "n_words"),
    [
        (["theme dog"], 2),  # "the" is given, and the word ends in "me"
        (["the"], 0),
        (["xyz dog"], 2),
        ([" the dog"], 1),
        (["你好 dog"], 2),  # a part of a character is given
        (["the dog", "the dog"], 2),
    ],
)
def test_a_word_counts_if_it_ends_in_a_scored_token(texts: list[str], n_words: int):
    model = random_model(ModelConfig(family="decoder", max_length=64, **SIZES))
    scored = perplexity(model, TOKENIZER, texts, eos_id=TOKENIZER.eos_id)
    assert scored.n_words == n_words
    assert n_words or scored.per_word is None
    joined = perplexity(model, TOKENIZER, ["", *texts], joined=True, eos_id=TOKENIZER.eos_id)
    assert joined.n_words == sum(len(text.split()) for text in texts)  # the first end is given


def test_a_text_without_blanks_has_no_words_and_every_character_counts():
    model = random_model(ModelConfig(family="decoder", max_length=64, **SIZES))
    chinese = (
        "滿紙荒唐言一把辛酸淚" * 40
    )  # as one word, e to its surprise would be beyond all numbers
    found = perplexity(model, TOKENIZER, [chinese], bos_id=1)
    assert found.per_word is None
    assert found.per_character == pytest.approx(math.exp(found.nats / len(chinese)))
    one = perplexity(model, TOKENIZER, ["淚"])  # three tokens, the first of which is given
    assert (one.n_tokens, one.n_characters) == (2, 1)


def test_a_stride_that_leaves_tokens_out_and_an_empty_text_are_refused():
    model = random_model(ModelConfig(family="decoder", max_length=9, **SIZES))
    with pytest.raises(InputError, match="stride=10 must be between 1 and the window of 9"):
        perplexity(model, TOKENIZER, [TEXT], stride=10)
    with pytest.raises(InputError, match="no token to score"):
        perplexity(model, TOKENIZER, [], bos_id=1)


def test_lines_are_translated_in_order_and_empty_ones_stay_empty():
    model = random_model(ModelConfig(family="encoder-decoder", max_length=40, **SIZES))
    lines = ["the dog", "", "on the green grass", "dog"]
    for width in (1, 2):
        config = TranslateConfig(beam=BeamConfig(width=width), max_new=5)
        together = translate_lines(OwnEngine(model), CODEC, lines, config)
        alone = [translate_lines(OwnEngine(model), CODEC, [line], config)[0] for line in lines]
        assert together == alone and together[1] == ""


def test_sources_that_are_cut_are_counted(caplog: pytest.LogCaptureFixture):
    model = random_model(ModelConfig(max_length=9, **SIZES))
    lines = ["the dog", "the dog runs on and on and on, " * 9]
    translate_lines(OwnEngine(model), CODEC, lines, TranslateConfig(max_new=2))
    assert "1 of 2 sources were cut to 9 tokens" in caplog.text


def test_translation_scores_are_sacrebleus_with_its_signature():
    sacrebleu = pytest.importorskip("sacrebleu", reason="needs the extra eval")
    references = ["the dog runs on the grass .", "a cat sleeps in the warm sun ."]
    written = ["the dog runs in the grass .", "a cat sleeps in the sun ."]
    bleu, chrf = translation_scores(written, references, n_resamples=50)
    assert bleu.value == pytest.approx(sacrebleu.corpus_bleu(written, [references]).score)
    assert chrf.value == pytest.approx(
        sacrebleu.corpus_chrf(written, [references], word_order=2).score
    )
    assert bleu.half_interval and "tok:13a" in bleu.signature and "nw:2" in chrf.signature
    same = compare_translations(written, written, references, n_resamples=50)
    assert [each.p_value for each in same] == [1.0, 1.0]
    worse = compare_translations(written, ["x", "y"], references, n_resamples=50)
    assert all(each.second < each.first for each in worse)


def with_other_words(lines: list[str], share: float, seed: int) -> list[str]:
    """Each word becomes another one of the same lines with this chance."""
    draw = random.Random(seed)
    words = [word for line in lines for word in line.split()]
    return [
        " ".join(draw.choice(words) if draw.random() < share else word for word in line.split())
        for line in lines
    ]


REFERENCES = with_other_words([" ".join("abcdefghijk")] * 25, 1.0, seed=0)


def test_the_interval_is_that_of_a_bootstrap_by_hand():
    sacrebleu = pytest.importorskip("sacrebleu", reason="needs the extra eval")
    written = with_other_words(REFERENCES, 0.2, seed=1)
    draw, resampled = random.Random(2), ([], [])
    for _ in range(60):
        rows = draw.choices(list(zip(written, REFERENCES)), k=25)
        lines, references = [line for line, _ in rows], [[reference for _, reference in rows]]
        resampled[0].append(sacrebleu.corpus_bleu(lines, references).score)
        resampled[1].append(sacrebleu.corpus_chrf(lines, references, word_order=2).score)
    scores = translation_scores(written, REFERENCES, n_resamples=400)
    # 95 % of a normal distribution are within 1.96 standard deviations.
    by_hand = [1.96 * statistics.stdev(each) for each in resampled]
    assert [each.half_interval for each in scores] == pytest.approx(by_hand, rel=0.15)


@pytest.mark.parametrize("n_lines", [1, 2, 3, 5])
def test_a_few_lines_show_no_difference(n_lines: int):
    pytest.importorskip("sacrebleu", reason="needs the extra eval")
    wrong = ["nothing of this is right at all"] * n_lines
    for each in compare_translations(REFERENCES[:n_lines], wrong, REFERENCES[:n_lines]):
        assert each.p_value > 0.05 and "no difference shown" in each.verdict
    if n_lines == 1:
        assert translation_scores(wrong, REFERENCES[:1])[0].half_interval is None


def test_chance_explains_a_small_difference_and_not_a_large_one():
    pytest.importorskip("sacrebleu", reason="needs the extra eval")
    written = with_other_words(REFERENCES, 0.2, seed=1)
    few = [*with_other_words(REFERENCES[:6], 0.2, seed=3), *written[6:]]
    alike = compare_translations(written, few, REFERENCES, n_resamples=200)
    assert all(each.first != each.second and 0.05 < each.p_value < 1 for each in alike), alike
    assert all("no difference shown" in each.verdict for each in alike)
    many = with_other_words(written, 0.5, seed=4)
    unlike = compare_translations(written, many, REFERENCES, n_resamples=200)
    assert all(0 < each.p_value < 0.05 for each in unlike), unlike
    assert all("the first is better" in each.verdict for each in unlike)


def test_lines_that_do_not_pair_up_or_are_not_there_are_refused():
    with pytest.raises(InputError, match="1 translations and 2 references; line n of one"):
        translation_scores(["a"], ["a", "b"])
    with pytest.raises(InputError, match="nothing to evaluate"):
        translation_scores([], [])


def test_without_sacrebleu_it_says_which_extra_to_install():
    with (
        patch.dict("sys.modules", {"sacrebleu": None, "sacrebleu.metrics": None}),
        pytest.raises(ClearheadError, match=r"pip install 'clearhead\[eval\]'"),
    ):
        translation_scores(["a"], ["a"])
