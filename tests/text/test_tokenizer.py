"""Every string and every byte sequence comes back; text cannot forge control tokens."""

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as LibraryTokenizer
from tokenizers import models, pre_tokenizers

from clearhead.errors import DataError, InputError
from clearhead.text.tokenizer import Tokenizer, byte_alphabet, load_tokenizer, tokenizer_from_json
from clearhead.text.train import train_bpe, train_characters

TEXTS = ["the cat sat on the mat " * 20, "红楼梦，红楼梦。" * 20, "Zwei Mädchen fahren Rad. " * 20]
TOKENIZERS = {
    "bpe": train_bpe(TEXTS, 400),
    "character": train_characters(TEXTS),
    "few characters": train_characters(TEXTS, 262),
}
KINDS = pytest.mark.parametrize("kind", TOKENIZERS)


@KINDS
@settings(max_examples=150)
@given(text=st.text())
@example(text="")
@example(text="a<eos>b<pad><bos><mask><0x41>")
@example(text="👩‍👩‍👧‍👦 e\u0301 \u202e\u0000\x1b[31m\ufeff\r\n\t\u2028")
@example(text=" leading and trailing  ")
def test_every_string_comes_back(kind: str, text: str):
    tokenizer = TOKENIZERS[kind]
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert not tokenizer.control_ids & set(ids)


@KINDS
@settings(max_examples=150)
@given(data=st.binary())
@example(data=bytes(range(256)))
@example(data="红".encode()[:2] + b"the cat")
def test_every_byte_sequence_comes_back(kind: str, data: bytes):
    tokenizer = TOKENIZERS[kind]
    assert tokenizer.decode_bytes(tokenizer.encode_bytes(data)) == data


@KINDS
def test_text_and_its_bytes_have_the_same_tokens(kind: str):
    tokenizer = TOKENIZERS[kind]
    assert tokenizer.encode_bytes("the 红楼 Mädchen".encode()) == tokenizer.encode(
        "the 红楼 Mädchen"
    )


@KINDS
def test_padding_start_and_end_are_0_1_2(kind: str):
    tokenizer = TOKENIZERS[kind]
    assert (tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id) == (0, 1, 2)
    assert tokenizer.decode([1, 0, 2]) == ""
    assert tokenizer.decode([1, 0, 2], show_control=True) == "<bos><pad><eos>"


def test_training_twice_gives_the_same_bytes():
    for train in (train_bpe, train_characters):
        assert train(TEXTS, 300).to_json() == train(TEXTS, 300).to_json()


def test_a_frequent_word_becomes_one_token():
    assert len(TOKENIZERS["bpe"].encode(" cat")) == 1
    assert len(TOKENIZERS["bpe"].encode("红楼梦")) == 1


def test_a_character_tokenizer_has_one_token_a_character_and_bytes_for_the_rest():
    tokenizer = TOKENIZERS["character"]
    assert len(tokenizer.encode("the mat")) == 7
    assert len(tokenizer.encode("龙")) == 3
    assert tokenizer.vocab_size == 3 + 256 + len(set("".join(TEXTS)))


def test_the_most_frequent_characters_get_the_few_places():
    vocabulary = TOKENIZERS["few characters"].library.get_vocab()
    assert len(vocabulary) == 262
    assert " " in vocabulary and "梦" not in vocabulary


def test_normalisation_is_a_choice_that_the_file_records():
    decomposed = "e\u0301"
    assert TOKENIZERS["bpe"].decode(TOKENIZERS["bpe"].encode(decomposed)) == decomposed
    for train in (train_bpe, train_characters):
        tokenizer = train([decomposed], 300, normalize="nfc")
        assert tokenizer.decode(tokenizer.encode(decomposed)) == "\u00e9"
        assert '"NFC"' in tokenizer.to_json()
        with pytest.raises(InputError, match="cannot encode raw bytes"):
            tokenizer.encode_bytes(b"a")


def test_half_a_surrogate_pair_is_refused_with_its_place():
    with pytest.raises(InputError, match=r"character 2 .*U\+D83D"):
        TOKENIZERS["bpe"].encode("ab\ud83d")


def test_a_saved_tokenizer_gives_the_same_ids(tmp_path: Path):
    tokenizer = TOKENIZERS["bpe"]
    (tmp_path / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    loaded = load_tokenizer(tmp_path / "tokenizer.json")
    assert loaded.encode("the 猫 <eos>") == tokenizer.encode("the 猫 <eos>")
    assert loaded.sha256 == tokenizer.sha256


def foreign_tokenizer() -> LibraryTokenizer:
    """Like one from elsewhere: other names, and settings for cutting and padding."""
    library = LibraryTokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1, "cat": 2}, "[UNK]"))
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    library.add_special_tokens(["[PAD]", "[CLS]", "[SEP]"])
    library.enable_truncation(2)
    library.enable_padding(length=9)
    return library


def test_a_tokenizer_from_elsewhere_neither_cuts_nor_pads():
    tokenizer = Tokenizer(foreign_tokenizer(), ["[PAD]", "[CLS]", "[SEP]"])
    assert tokenizer.encode("cat cat cat") == [2, 2, 2]
    assert tokenizer.decode([2, 2, tokenizer.eos_id]) == "cat cat"
    with pytest.raises(InputError, match="not byte-level"):
        tokenizer.decode_bytes([2])


def test_missing_special_tokens_are_named_with_those_there_are():
    with pytest.raises(DataError, match=r"no token '<pad>'.*special_tokens.*\[CLS\]"):
        tokenizer_from_json(foreign_tokenizer().to_str())


def test_a_file_that_is_no_tokenizer_is_named(tmp_path: Path):
    with pytest.raises(DataError, match=r"missing\.json cannot be read"):
        load_tokenizer(tmp_path / "missing.json")
    (tmp_path / "broken.json").write_text("{}")
    with pytest.raises(DataError, match=r"broken\.json is not a tokenizer\.json"):
        load_tokenizer(tmp_path / "broken.json")


def test_a_one_letter_special_token_may_not_be_a_character_of_the_text():
    with pytest.raises(DataError, match="'t' is a character of the text"):
        train_characters(TEXTS, special_tokens=["t", "<bos>", "<eos>"])


def test_the_byte_alphabet_is_that_of_the_library():
    assert sorted(byte_alphabet().values()) == sorted(pre_tokenizers.ByteLevel.alphabet())
