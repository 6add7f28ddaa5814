"""A model with reserved tokens for spans keeps them, trained or not."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from clearhead.config import BeamConfig, Choice, DecodeConfig, ModelConfig, TranslateConfig
from clearhead.config.data import DataConfig
from clearhead.data.batches import Renumbering
from clearhead.data.encode import encode_sides
from clearhead.decoding.beam import beam_search
from clearhead.decoding.codec import Codec
from clearhead.decoding.constraints import Constraint
from clearhead.decoding.generation import greedy
from clearhead.decoding.keeping import keep_spans, keeps_spans, next_spans
from clearhead.decoding.results import Output
from clearhead.decoding.sampling import sample
from clearhead.decoding.text import OwnEngine, translate_texts
from clearhead.errors import ConfigError
from clearhead.interop.model_folder import TokenIds
from clearhead.localise.masking import mask
from clearhead.localise.spans import rules_of
from clearhead.models import Seq2Seq
from clearhead.models.assemble import build_model
from clearhead.text.pieces import decode_pieces, encode_pieces, text_with_numbers
from clearhead.text.tokenizer import Tokenizer
from clearhead.text.train import train_bpe

N_RESERVED = 12
MAX_LENGTH = 40
PARTS = ["%s", "%d", "%(name)s", "%'d", "{0}", "{name}", "<b>", "</b>", "<i>", "</i>", "<br/>"]
PARTS += ["&amp;", "https://a.b/c", ":ref:`x`", "open the file ", "a cat, ", "% ", "\n", "x < y "]
FORMATS = [[], ["c-format"], ["python-format"], ["python-brace-format"]]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    config = DataConfig(task="pairs", format="tsv", columns=(1, 2), train=("x",), vocab_size=340,
                        placeholders=N_RESERVED)  # fmt: skip
    text = ["open the file, a cat; %s {name} <b> </b> &amp; < > ` $ https://", "ouvrir le fichier"]
    return train_bpe(text, 340, special_tokens=config.control_tokens)


@pytest.fixture(scope="module")
def model(tokenizer: Tokenizer) -> Seq2Seq:
    torch.manual_seed(5)
    config = ModelConfig(
        family="encoder-decoder", vocab_size=tokenizer.vocab_size, max_length=MAX_LENGTH,
        d_model=8, n_heads=2, d_ff=12, n_layers=1,
    )  # fmt: skip
    model = build_model(config)
    assert isinstance(model, Seq2Seq)
    return model


@pytest.fixture(scope="module")
def codec(tokenizer: Tokenizer) -> Codec:
    return Codec(source=tokenizer, target=tokenizer, ids=TokenIds())


def random_texts(n: int, most: int = 9) -> list[str]:
    chance = random.Random(7)
    return ["".join(chance.choices(PARTS, k=chance.randint(1, most))) + "a" for _ in range(n)]


Rows = Sequence[list[int]]
Decode = Callable[[Seq2Seq, Rows, DecodeConfig, list[Constraint]], list[list[Output]]]


def by_greedy(
    model: Seq2Seq, sources: Rows, ends: DecodeConfig, constraints: list[Constraint]
) -> list[list[Output]]:
    return [[output] for output in greedy(model, sources, ends, constraint=constraints)]


def by_beam(
    model: Seq2Seq, sources: Rows, ends: DecodeConfig, constraints: list[Constraint]
) -> list[list[Output]]:
    return beam_search(model, sources, ends, BeamConfig(width=3, n_best=3), constraint=constraints)


def by_sampling(
    model: Seq2Seq, sources: Rows, ends: DecodeConfig, constraints: list[Constraint]
) -> list[list[Output]]:
    choice = Choice(temperature=1.5, top_k=40)
    outputs = sample(model, sources, ends, choice, seed=3, constraint=constraints)
    return [[output] for output in outputs]


@pytest.mark.parametrize("decode", [by_greedy, by_beam, by_sampling])
@pytest.mark.parametrize("flags", FORMATS)
def test_an_untrained_model_keeps_every_span(
    model: Seq2Seq, codec: Codec, decode: Decode, flags: list[str]
):
    texts = [mask(text, rules_of(flags)) for text in random_texts(12)]
    constraints = [keep_spans(text, codec.target, 20) for text in texts]
    found = decode(model, codec.encode_masked(texts), codec.decode_config(20), constraints)
    for text, output in ((text, output) for text, own in zip(texts, found) for output in own):
        pieces = decode_pieces(codec.target, output.tokens)
        numbers = [piece for piece in pieces if isinstance(piece, int)]
        assert sorted(numbers) == [*range(len(text.spans))]
        assert [number for number in numbers if number in text.in_order] == [*text.in_order]
        for opener, closer in text.tags.items():
            assert numbers.index(opener) < numbers.index(closer)
        assert keeps_spans(text, codec.target, output.tokens)


@pytest.mark.parametrize("width", [1, 3])
def test_translations_of_any_text_keep_its_spans(model: Seq2Seq, codec: Codec, width: int):
    texts = [*random_texts(8), "{a} " * 11 + "cat", "%d", "%s" * (N_RESERVED + 2) + " cats"]
    config = TranslateConfig(beam=BeamConfig(width=width), max_new=10)
    answers = translate_texts(OwnEngine(model), codec, [*texts, ""], config)
    for text, answer in zip(texts, answers):
        assert all(mask(text).is_kept_by(output.text) for output in answer.outputs), text
    assert sum(bool(answer.outputs) for answer in answers) > len(texts) / 2
    assert answers[9].texts == ["%d"]
    assert answers[10].texts[0].startswith("%s" * (N_RESERVED + 2))
    assert answers[11].outputs == []


class ForgetfulEngine(OwnEngine):
    """The same model in a software that knows no constraints."""

    is_constrained = False  # pyright: ignore[reportAssignmentType,reportIncompatibleMethodOverride]
    n_opened = 0

    @property
    def constrained(self) -> OwnEngine:
        self.n_opened += 1
        return OwnEngine(self.model)

    def translate(self, sources, ends, how, constraints=None):
        assert constraints is None
        return super().translate(sources, ends, how)


@pytest.mark.parametrize("width", [1, 3])
def test_what_another_engine_has_lost_is_decoded_again(model: Seq2Seq, codec: Codec, width: int):
    texts = ["open the file", "a <b>cat</b>, open %s", "a cat {name}", "%d", ""]
    config = TranslateConfig(beam=BeamConfig(width=width), max_new=10)
    forgetful = ForgetfulEngine(model)
    answers = translate_texts(forgetful, codec, texts, config)
    expected = translate_texts(OwnEngine(model), codec, texts, config)
    assert [answer.again for answer in answers] == [False, True, True, False, False]
    assert [answer.texts for answer in answers[1:]] == [answer.texts for answer in expected[1:]]
    assert forgetful.n_opened == 1
    translate_texts(forgetful, codec, texts[:1], config)
    assert forgetful.n_opened == 1, "the model itself is read only where it is needed"
    assert not any(answer.again for answer in expected)


def test_the_limit_of_length_leaves_space_for_missing_spans(model: Seq2Seq, codec: Codec):
    text = mask("a %(a)s b %(b)s c %(c)s")
    for max_new in (4, 5, 9):
        constraint = keep_spans(text, codec.target, max_new)
        ends = codec.decode_config(max_new)
        (output,) = greedy(model, codec.encode_masked([text]), ends, constraint=[constraint])
        assert keeps_spans(text, codec.target, output.tokens)
        assert len(output.tokens) <= max_new


def test_tags_stay_nested_and_one_span_may_always_follow():
    text = mask("<b>%s <i>x</i></b> {y}", rules_of([]))
    assert len(text.spans) == 6
    assert next_spans(text, []) == [0, 1, 2, 5]  # no tag that closes
    assert next_spans(text, [0, 2]) == [1, 3, 5]  # not </b>
    assert next_spans(text, [0, 2, 3]) == [1, 4, 5]
    chance = random.Random(1)
    for _ in range(50):
        used: list[int] = []
        while len(used) < len(text.spans):
            used.append(chance.choice(next_spans(text, used)))
        assert next_spans(text, used) == []


def test_text_cannot_spell_a_reserved_token(tokenizer: Tokenizer):
    assert len(tokenizer.placeholder_ids) == N_RESERVED
    ids = tokenizer.encode("<placeholder-0> <placeholder-11>")
    assert not set(ids) & set(tokenizer.placeholder_ids)
    pieces = ["a ", 3, 0, " <placeholder-1>"]
    (encoded,) = encode_pieces(tokenizer, [pieces])
    assert decode_pieces(tokenizer, encoded) == pieces
    assert text_with_numbers(tokenizer, encoded) == "a {3}{0} <placeholder-1>"


def test_both_sides_of_a_pair_have_the_same_reserved_tokens(tokenizer: Tokenizer):
    texts = (["_Open %s in <b>%d</b>", "a"], ["<b>%2$d</b> : _ouvrir %s %x", "b"])
    encoded = encode_sides([tokenizer, tokenizer], texts)
    rows = [side.tokens[: side.lengths[0] - 1].tolist() for side in encoded]
    source, target = (text_with_numbers(tokenizer, row) for row in rows)
    assert source == "Open {0} in {1}{2}{3}"
    assert target == "{1}{2}{3} : ouvrir {0} %x"


def test_numbers_are_shuffled_by_a_key_and_alike_on_both_sides():
    renumber = Renumbering(range(3, 11), range(103, 111))
    source, target = np.array([20, 3, 4, 2, 4]), np.array([104, 103, 120, 2], np.uint16)
    seen: Counter[int] = Counter()
    for key in range(200):
        new_source, new_target = renumber(source, target, key)
        again = renumber(source, target, key)
        assert all(map(np.array_equal, again, (new_source, new_target)))
        first, second = new_source[1], new_source[2]
        assert new_source.tolist() == [20, first, second, 2, second]
        assert new_target.tolist() == [second + 100, first + 100, 120, 2]
        seen[int(first)] += 1
    assert set(seen) == set(range(3, 11))
    nothing = Renumbering((), ())
    assert nothing(source, target, 1)[0] is source


def test_placeholders_are_for_pairs(tmp_path: Path):
    with pytest.raises(ConfigError, match="placeholders=4 is for task='pairs'"):
        DataConfig(train=(str(tmp_path),), vocab_size=300, placeholders=4)
