"""A text means the same tokens to every command."""

import gzip
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import Tokenizer as LibraryTokenizer
from tokenizers import decoders, models

from clearhead.cli import main
from clearhead.config import BeamConfig, Choice, GenerateConfig, ModelConfig, TranslateConfig
from clearhead.decoding import greedy
from clearhead.decoding.codec import Codec
from clearhead.decoding.continuing import generate_texts, stream_generated
from clearhead.decoding.scoring import score_texts
from clearhead.decoding.sentences import LanguagePair
from clearhead.decoding.sources import encode_sources
from clearhead.decoding.streaming import TextStream
from clearhead.decoding.text import OwnEngine, translate_texts
from clearhead.errors import InputError
from clearhead.interop.model_folder import TokenIds, save_model
from clearhead.text.tokenizer import Tokenizer
from clearhead.text.train import train_bpe
from tests.decoding.reference import vivid
from tests.drawing import random_model

TOKENIZER = train_bpe(["ein Hund läuft", "a dog runs on the green grass 你好"] * 9, 300)
SIZES = {"vocab_size": 300, "d_model": 12, "n_heads": 2, "d_ff": 17, "n_layers": 1}
MT = vivid(random_model(ModelConfig(family="encoder-decoder", max_length=20, **SIZES), seed=3))
LM = vivid(random_model(ModelConfig(family="decoder", max_length=20, **SIZES), seed=3))
CODEC = Codec(source=TOKENIZER, target=TOKENIZER, ids=TokenIds())
ENDLESS = Codec(source=TOKENIZER, target=TOKENIZER, ids=TokenIds(eos=None))


def test_a_score_is_divided_by_the_length_penalty_whatever_the_width_of_the_beam():
    for alpha in (0.0, 1.0):
        how = TranslateConfig(beam=BeamConfig(width=1, alpha=alpha), max_new=6)
        ((found,),) = [each.outputs for each in translate_texts(OwnEngine(MT), CODEC, ["ein"], how)]
        assert found.score == pytest.approx(found.log_prob / len(found.tokens) ** alpha)


def test_a_decoder_is_not_given_a_source_that_leaves_no_room_for_its_target():
    joined = Codec(source=TOKENIZER, target=TOKENIZER, ids=TokenIds(target_start=1))
    assert (CODEC.longest_source(20), joined.longest_source(20)) == (20, 15)
    assert len(joined.fit_source([5] * 15, 20)) == 15
    with pytest.raises(InputError, match="has 16 tokens, but the model takes 15; split it"):
        joined.fit_source([5] * 16, 20)
    (skipped,) = encode_sources(joined, ["a b c d e f g h i j k l m"], 8, "skip")
    assert skipped.tokens == [] and skipped.n_cut > 6


def test_a_source_ends_with_the_end_of_the_model_and_with_nothing_where_it_has_none():
    text, ids = " ein Hund\t", TOKENIZER.encode("ein Hund")
    assert CODEC.encode_sources([text]) == [[*ids, TOKENIZER.eos_id]]
    assert ENDLESS.encode_sources([text]) == [ids]
    with pytest.raises(InputError, match="has no eos token; use start=none"):
        ENDLESS.encode_prompts(["a"], "eos")


def test_blanks_at_the_ends_are_tokens_of_a_model_that_was_trained_with_them():
    text = " ein Hund\t"
    kept = Codec(source=TOKENIZER, target=TOKENIZER, ids=TokenIds(strip=False))
    assert kept.encode_sources([text]) == [[*TOKENIZER.encode(text), TOKENIZER.eos_id]]
    assert kept.encode_targets([text]) == kept.encode_sources([text])
    assert CODEC.encode_targets([text]) == CODEC.encode_targets(["ein Hund"])
    (given,) = [each.tokens_read for each in translate_texts(OwnEngine(MT), kept, [text])]
    assert given == kept.encode_sources([text])[0]
    (split,) = translate_texts(OwnEngine(MT), kept, [text], split=LanguagePair("de", "en"))
    assert split.tokens_read == given


def test_translate_and_evaluate_agree_on_a_model_without_an_end(tmp_path: Path, capsys):
    (tmp_path / "tokenizer.json").write_text(TOKENIZER.to_json(), encoding="utf-8")
    save_model(MT.float(), tmp_path / "mt", tokenizer=tmp_path, ids=TokenIds(eos=None))
    MT.double()
    (tmp_path / "lines").write_text("ein Hund\na dog runs\n", encoding="utf-8")
    search = ["--max-new", "5", "--beam", "2"]
    lines = ["--input", str(tmp_path / "lines"), "--output", str(tmp_path / "out")]
    assert main(["translate", str(tmp_path / "mt"), *lines, *search]) == 0
    (tmp_path / "out.gz").write_bytes(gzip.compress((tmp_path / "out").read_bytes()))
    files = ["--source", str(tmp_path / "lines"), "--reference", str(tmp_path / "out.gz")]
    assert main(["evaluate", str(tmp_path / "mt"), *files, *search, "--exact"]) == 0
    assert "exact   100.00%" in capsys.readouterr().out


def test_texts_come_back_in_order_with_what_the_model_was_given():
    texts = ["a dog runs on the green grass", "", "ein Hund", " \n"]
    config = TranslateConfig(beam=BeamConfig(width=3, n_best=2), max_new=6)
    found = translate_texts(OwnEngine(MT), CODEC, texts, config)
    assert [len(each.texts) for each in found] == [2, 0, 2, 0]
    assert found[2].tokens_read == CODEC.encode_sources(["ein Hund"])[0]
    (alone,) = translate_texts(OwnEngine(MT), CODEC, ["ein Hund"], config)
    assert alone.texts == found[2].texts


def test_a_text_that_is_too_long_is_refused_by_its_name_or_cut_before_its_end():
    long = "dog " * 30
    how = TranslateConfig(too_long="refuse")
    with pytest.raises(InputError, match=r"line 7 has .* tokens, but the model takes 20"):
        translate_texts(OwnEngine(MT), CODEC, [long], how, names=["line 7"])
    (skipped,) = translate_texts(OwnEngine(MT), CODEC, [long])
    assert skipped.outputs == [] and skipped.n_cut > 20
    (cut,) = translate_texts(
        OwnEngine(MT), CODEC, [long], TranslateConfig(too_long="cut", max_new=3)
    )
    whole = CODEC.encode_sources([long])[0]
    assert cut.tokens_read == [*whole[:19], TOKENIZER.eos_id] and cut.n_cut == len(whole) - 20
    with pytest.raises(InputError, match=r"text 1 has .* tokens, but the model takes 20"):
        generate_texts(OwnEngine(LM), CODEC, [long])
    (cut,) = generate_texts(OwnEngine(LM), CODEC, [long], GenerateConfig(too_long="cut"))
    assert cut.tokens_read == CODEC.encode_prompts([long])[0][-10:]


def test_a_generated_text_depends_on_its_number_and_not_on_its_neighbours():
    config = GenerateConfig(seed=5, max_new=6)
    together = generate_texts(OwnEngine(LM), CODEC, ["a dog", "", "ein Hund", "a"], config)
    (alone,) = generate_texts(OwnEngine(LM), CODEC, ["ein Hund"], config, first_number=3)
    assert alone.texts == together[2].texts and together[1].texts == []
    pieces = stream_generated(LM, CODEC, "ein Hund", config, number=3)
    assert "".join(pieces) == alone.texts[0]
    only = GenerateConfig(only=("yes", "no"), choice=Choice(temperature=0))
    (answer,) = generate_texts(OwnEngine(LM), CODEC, ["a dog"], only)
    assert answer.texts[0] in ("yes", "no")


def test_an_allowed_text_that_cannot_be_whole_behind_its_prompt_is_refused():
    only = GenerateConfig(only=("x", "a dog runs on the green grass"), max_new=20)
    prompt = "ein Hund läuft " * 4
    longest = len(TOKENIZER.encode(only.only[1]))
    room = 20 - len(TOKENIZER.encode(prompt))
    assert 0 < room < longest < 20
    message = f"has {longest} tokens, but after the longest prompt the model has space for {room}"
    with pytest.raises(InputError, match=message):
        generate_texts(OwnEngine(LM), CODEC, [prompt], only)
    with pytest.raises(InputError, match=message):
        list(stream_generated(LM, CODEC, prompt, only))


def test_the_blank_between_a_prompt_and_its_continuation_is_kept():
    """As in the tokenizers of Llama, whose decoders leave out a blank at the very beginning."""
    names = ["<pad>", "<bos>", "<eos>"]
    known = {"<unk>": 0, "Hello": 1, "▁world": 2}
    words = LibraryTokenizer(models.WordLevel(known, "<unk>"))
    words.add_special_tokens(names)
    steps = [decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    words.decoder = decoders.Sequence(steps)
    tokenizer = Tokenizer(words, names)
    assert tokenizer.decode([2, 2]) == "world world"
    assert tokenizer.decode([2, 2], behind=[1]) == " world world"
    stream = TextStream(tokenizer, [1])
    assert [stream.push(2), stream.push(2), stream.rest()] == [" world", " world", ""]


def test_a_model_that_records_the_start_of_its_documents_is_given_it_unless_another_is_asked_for():
    begun = replace(CODEC, ids=TokenIds(prompt_start=1))
    starts = ("auto", "none", "bos", "eos")
    assert [begun.start_ids(start) for start in starts] == [[1], [], [1], [2]]
    assert [CODEC.start_ids(start) for start in starts] == [[], [], [1], [2]]
    how = GenerateConfig(choice=Choice(temperature=0), max_new=5)
    (found,) = generate_texts(OwnEngine(LM), begun, ["a dog"], how)
    assert found.tokens_read == [1, *TOKENIZER.encode("a dog")]
    bos = replace(how, start="bos")
    assert [found] == generate_texts(OwnEngine(LM), CODEC, ["a dog"], bos)
    assert "".join(stream_generated(LM, begun, "a dog", how)) == found.texts[0]
    assert list(stream_generated(LM, begun, "", how)) == list(stream_generated(LM, CODEC, "", bos))
    assert score_texts(LM, begun, ["a dog"]) == score_texts(LM, CODEC, ["a dog"], start="bos")
    assert score_texts(LM, begun, ["a dog"], start="none") == score_texts(LM, CODEC, ["a dog"])


def test_scores_are_those_of_what_was_decoded():
    config = TranslateConfig(beam=BeamConfig(width=1), max_new=15)
    (found,) = translate_texts(OwnEngine(MT), CODEC, ["ein Hund"], config)
    (output,) = greedy(MT, [found.tokens_read], CODEC.decode_config(15))
    assert found.outputs[0].tokens == output.tokens
    scored = score_texts(MT, CODEC, ["ein Hund", ""], ["a dog", ""])
    assert scored[0].tokens == CODEC.encode_targets(["a dog"])[0] and scored[1].tokens == []
    (blank, nothing) = score_texts(LM, CODEC, ["\n\n", ""], start="bos")
    assert blank.log_prob < 0 and nothing.log_prob == 0.0
    (whole,) = score_texts(LM, CODEC, ["a dog"], start="bos")
    assert whole.tokens == TOKENIZER.encode("a dog") and max(whole.log_probs) < 0
    with pytest.raises(InputError, match="give a target for each text"):
        score_texts(MT, CODEC, ["ein Hund"])
