"""A `tokenizer.json` from anybody: no short text takes minutes or fills the memory, and what cannot
be shown to be harmless is refused at once, with a way out for those who trust its maker."""

import base64
import json
import re
import struct
import unicodedata
from collections.abc import Callable
from math import ceil
from pathlib import Path
from typing import Any

import pytest
from tokenizers import decoders, normalizers, pre_tokenizers, processors

from clearhead.errors import DataError
from clearhead.text import untrusted
from clearhead.text.character_maps import map_growth
from clearhead.text.tokenizer import load_tokenizer, tokenizer_from_json
from clearhead.text.train import train_bpe
from tests.security.test_small_files_large_costs import outcome

REGEX = {"Regex": "(?=.)"}
A_TO_A = {"type": "Replace", "pattern": {"String": "a"}, "content": "a"}
TEMPLATE = {"pair": [], "special_tokens": {}, "type": "TemplateProcessing"}
PIECE = {"Sequence": {"id": "A", "type_id": 0}}
WORDS = {"[UNK]": 0, "a": 1, "##a": 2, "<pad>": 3, "<bos>": 4, "<eos>": 5}
WORD_PIECE = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##"}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}


@pytest.fixture(scope="module")
def content() -> dict[str, Any]:
    texts = ["the quick brown fox jumps over the lazy dog", "hello world 123"] * 20
    return json.loads(train_bpe(texts, 300).to_json())


def character_map(key: str, text: str) -> str:
    """A map of characters, as sentencepiece writes it, that makes this text of each key."""
    trie = [0] * 256 * (len(key.encode()) + 2)
    before, base = 0, 0
    for number, letter in enumerate(key.encode(), 1):
        trie[before] |= (base ^ 256 * number) << 10  # where the next letter is looked up
        base = 256 * number
        before = base = base ^ letter
        trie[before] = letter
    trie[before] |= 1 << 8 | 1 << 10  # a key ends here; where its text starts is beside it: at 0
    trie[before ^ 1] = 1 << 31
    data = struct.pack(f"<I{len(trie)}I", 4 * len(trie), *trie) + text.encode() + b"\0"
    return base64.b64encode(data).decode()


def sequence(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "normalizers": list(steps)}


def split(pattern: str) -> dict[str, Any]:
    how = {"behavior": "Isolated", "invert": False}
    return {"type": "Split", "pattern": {"Regex": pattern}, **how}


GROWS = {
    "empty matches become a letter": {
        "normalizer": sequence(*[{"type": "Replace", "pattern": REGEX, "content": "a"}] * 24)
    },
    "bytes become letters again and again": {"normalizer": sequence(*[{"type": "ByteLevel"}] * 30)},
    "a long text before each text": {"normalizer": {"type": "Prepend", "prepend": "a" * 1000}},
    "a map with a long text": {
        "normalizer": {
            "type": "Precompiled",
            "precompiled_charsmap": character_map("a", "b" * 1000),
        }
    },
    "maps that double": {
        "normalizer": sequence(
            *[{"type": "Precompiled", "precompiled_charsmap": character_map("a", "aa")}] * 30
        )
    },
    "ligatures": {
        "normalizer": sequence(
            *[{"type": "Replace", "pattern": {"String": "ا"}, "content": "ﷺ"}, {"type": "NFKD"}] * 9
        )
    },
    "the text a thousand times": {"post_processor": {**TEMPLATE, "single": [PIECE] * 1000}},
    "what is decoded": {
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "e"}, "content": "ee"} for _ in range(30)
            ],
        }
    },
}


@pytest.mark.parametrize("change", GROWS.values(), ids=GROWS)
def test_a_tokenizer_that_multiplies_a_text_is_refused(
    content: dict[str, Any], change: dict[str, Any]
):
    text = json.dumps(content | change)
    answer = outcome(
        lambda: tokenizer_from_json(text).encode("hello abc"), seconds=5, megabytes=500
    )
    assert answer.startswith("refused: this tokenizer can make "), answer
    assert f"times as long, and {untrusted.MAX_GROWTH} is the limit" in answer


def test_a_map_of_characters_is_read_as_the_library_reads_it():
    for key, text in (("a", "xyz"), ("é", ""), ("ﷺ", "صلى الله عليه وسلم"), ("𝔄", "A" * 40)):
        encoded = character_map(key, text)
        normalizer = normalizers.Precompiled(base64.b64decode(encoded))
        assert normalizer.normalize_str(f"b{key}n{key}") == f"b{text}n{text}"
        longer = max(1, ceil(len(text.encode()) / len(key.encode())))
        assert map_growth(encoded, compatible=False) == longer
        compatible = longer if unicodedata.is_normalized("NFKD", key) else 1
        assert map_growth(encoded, compatible=True) == compatible


SLOW = {
    "ways without number": ("(?:a|a){22}[bc0-9]", "a" * 60),
    "a repeated repetition": ("(a+)+b", "a" * 60),
    "read again from each place": ("a*[^a]b", "a" * 100_000),
    "a look ahead without end": ("a(?=a*b)", "a" * 100_000),
    "a set of sets": ("[" * 60 + "a" + "]" * 60 + "(a|aa)+$", "a" * 60),
}


@pytest.mark.parametrize(("pattern", "text"), SLOW.values(), ids=SLOW)
def test_a_pattern_that_takes_minutes_is_refused(content: dict[str, Any], pattern: str, text: str):
    steps = [split(pattern), {**BYTE_LEVEL, "use_regex": False}]
    changed = json.dumps(content | {"pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}})
    answer = outcome(lambda: tokenizer_from_json(changed).encode(text), seconds=5, megabytes=500)
    assert answer.startswith("refused: this tokenizer has the pattern "), answer
    assert "CLEARHEAD_TRUST_TOKENIZERS=1" in answer


@pytest.mark.parametrize("pattern", ["a?" * 2_000_000, "|".join(["ab"] * 2_000_000)], ids=len)
def test_a_long_pattern_is_not_compiled(content: dict[str, Any], pattern: str):
    text = json.dumps(content | {"pre_tokenizer": split(pattern)})
    answer = outcome(lambda: tokenizer_from_json(text), seconds=5, megabytes=500)
    assert "or one of over 2,000 characters" in answer


def test_many_steps_are_refused(content: dict[str, Any]):
    text = json.dumps(content | {"normalizer": sequence(*[A_TO_A] * 65)})
    with pytest.raises(DataError, match="more than 64 steps"):
        tokenizer_from_json(text)
    text = json.dumps(content | {"normalizer": sequence(*[A_TO_A] * 5000)})
    with pytest.raises(DataError, match="more than 20,000 settings"):
        tokenizer_from_json(text)


def test_a_long_word_takes_no_cubic_time(content: dict[str, Any]):
    model = {**WORD_PIECE, "vocab": WORDS, "max_input_chars_per_word": 10**9}
    text = json.dumps(content | {"model": model, "added_tokens": []})
    answer = outcome(lambda: tokenizer_from_json(text).encode("a" * 5000), seconds=5, megabytes=500)
    assert "max_input_chars_per_word=1000000000, and 256 is the limit" in answer


def test_a_token_has_a_length(content: dict[str, Any]):
    changed = json.loads(json.dumps(content))
    changed["model"]["vocab"]["a" * 5_000_000] = 300
    with pytest.raises(DataError, match="a token of 5,000,000 characters, and 1,000 is the limit"):
        tokenizer_from_json(json.dumps(changed))


def test_a_part_that_hides_its_kind_is_judged_as_the_library_reads_it(content: dict[str, Any]):
    """The library reads a step without a type as the first kind that fits."""
    hidden = {"pattern": REGEX, "content": "a"}
    with pytest.raises(DataError, match="times as long"):
        tokenizer_from_json(json.dumps(content | {"normalizer": sequence(*[hidden] * 24)}))


def test_a_name_that_stands_twice_is_refused(content: dict[str, Any]):
    text = json.dumps(content)
    twice = text[:-1] + ', "normalizer": null, "normalizer": null}'
    with pytest.raises(DataError, match="the same name twice"):
        tokenizer_from_json(twice)


def test_who_trusts_a_tokenizer_opens_it(
    content: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    steps = [split("a+(?=a*b)"), {**BYTE_LEVEL, "use_regex": False}]
    changed = content | {"pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(changed))
    with pytest.raises(DataError, match="CLEARHEAD_TRUST_TOKENIZERS=1"):
        load_tokenizer(tmp_path / "tokenizer.json")
    monkeypatch.setenv("CLEARHEAD_TRUST_TOKENIZERS", "1")
    assert load_tokenizer(tmp_path / "tokenizer.json").encode("hello aab")


@pytest.mark.parametrize("pattern", untrusted.SLOW)
def test_a_known_slow_pattern_is_accepted_without_long_runs(content: dict[str, Any], pattern: str):
    steps = [split(pattern), {**BYTE_LEVEL, "use_regex": False}]
    changed = content | {"pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}
    tokenizer = tokenizer_from_json(json.dumps(changed))
    kind = " " if untrusted.SLOW[pattern] == r"\s" else "1"
    for text in ("hello 1234567 ", kind * 1000, (kind * 900 + "x") * 20):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    with pytest.raises(DataError, match="more than 1,000 spaces or digits in a row"):
        tokenizer.encode_batch(["hello", "x" + kind * 1001 + "x"])
    # A normalizer may make blanks of letters, and a step before may do so as well.
    blanks = {"type": "Replace", "pattern": {"String": "q"}, "content": kind}
    tokenizer = tokenizer_from_json(json.dumps(changed | {"normalizer": blanks}))
    with pytest.raises(DataError, match="more than 1,000 spaces or digits in a row"):
        tokenizer.encode("q" * 1001)
    meta = {"type": "Metaspace", "replacement": kind, "prepend_scheme": "never", "split": False}
    steps.insert(0, meta)
    with pytest.raises(DataError, match="has the pattern"):
        tokenizer_from_json(json.dumps(changed))


def growing(characters: Callable[[str], bool]) -> list[str]:
    plain = (chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000)
    return [character for character in plain if characters(character)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", untrusted.FORMS)
def test_no_character_grows_more_than_is_said(kind: str):
    normalizer = getattr(normalizers, kind)()
    chinese = 2 if kind == "BertNormalizer" else 1
    for character in growing(lambda _: True):
        made = normalizer.normalize_str(character)
        limit = untrusted.FORMS[kind] * chinese * len(character.encode())
        assert len(made.encode()) <= limit, f"{character!r}"


@pytest.mark.slow
def test_several_forms_are_no_worse_than_one():
    names = ["Lowercase", "NFD", "NFKD", "Lowercase", "NFC", "NFKC", "Lowercase", "NFKD"]
    both = normalizers.Sequence([getattr(normalizers, name)() for name in names])
    for character in growing(lambda _: True):
        assert len(both.normalize_str(character).encode()) <= 11 * len(character.encode())


def test_every_step_of_the_library_is_known():
    """A new version of the library may bring steps that nobody has judged."""
    for module in (normalizers, pre_tokenizers, decoders, processors):
        names = {name for name in dir(module) if re.fullmatch("[A-Z].*[a-z].*|NF[A-Z]+|CTC", name)}
        names -= {"Normalizer", "PreTokenizer", "Decoder", "PostProcessor", "Sequence"}
        judged = {*untrusted.FORMS, *untrusted.CALM, *untrusted.KEEPS_TEXT, *untrusted.DECODERS}
        judged |= {"Replace", "Prepend", "Metaspace", "ByteLevel", "Precompiled", "DecodeStream"}
        judged |= {"TemplateProcessing", "BertProcessing", "RobertaProcessing"}
        assert names <= judged
