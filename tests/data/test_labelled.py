"""A text and its label: a mask stands where the label is to be guessed, and nothing else is."""

import gzip
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from small_corpora import labelled_config, make_corpus, write_labelled

from clearhead.cli import main
from clearhead.config import BatchConfig, DataConfig, Recipe, recipe_toml
from clearhead.config.data import SPLITS
from clearhead.data.batches import IGNORED
from clearhead.data.corpus import Corpus
from clearhead.data.loader import Loader
from clearhead.errors import ConfigError, DataError
from clearhead.intake.sources import Cursor, Reader, find_inputs, located
from clearhead.text.labels import label_ids
from clearhead.text.train import train_bpe

SPECIAL = ("<pad>", "<bos>", "<eos>", "<mask>")


def documents(root: Path, config: DataConfig, split: str = "train") -> list[tuple[str, ...]]:
    reader = Reader(find_inputs(located(config, root), split), config, split)
    return [document.texts for document in reader.documents(Cursor(), {})]


def test_a_file_for_each_label_gives_its_label_to_every_line(tmp_path: Path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"one\ntwo\n"))
    (tmp_path / "b").write_bytes(b"three\n")
    found = documents(tmp_path, labelled_config(("a.gz", "b")))
    assert found == [("one", "fine"), ("two", "fine"), ("three", "wet")]


def test_what_is_held_out_has_as_much_of_every_label(tmp_path: Path):
    config = labelled_config(write_labelled(tmp_path, 20), held_out=0.2, held_out_test=0.1)
    for split, n in zip(SPLITS, (14, 4, 2)):
        labels = [label for _, label in documents(tmp_path, config, split)]
        assert labels == ["fine"] * n + ["wet"] * n


@pytest.mark.parametrize("form", ["tsv", "jsonl"])
def test_a_label_can_stand_in_a_column_and_an_unknown_one_is_invalid_input(
    tmp_path: Path, form: str
):
    rows = [("a b", "wet"), ("c", "fine"), ("d", "dry")]
    line = {"tsv": "{1}\t{0}", "jsonl": '{{"t": "{0}", "l": "{1}"}}'}[form]
    (tmp_path / "a").write_text("\n".join(line.format(*row) for row in rows))
    columns = {"tsv": (2, 1), "jsonl": ("t", "l")}[form]
    config = labelled_config(("a",), format=form, columns=columns)
    with pytest.raises(DataError, match=r"line 3: the label 'dry' is not in data\.labels"):
        documents(tmp_path, config)
    assert documents(tmp_path, replace(config, skip=("malformed",))) == rows[:2]


def test_the_label_is_masked_and_is_all_there_is_to_guess(labelled: Corpus):
    stores = {side: labelled.store("train", side) for side in ("text", "label")}
    for batch in islice(Loader(labelled, BatchConfig(batch_tokens=120)), 9):
        assert batch.inputs.shape == batch.targets.shape and batch.inputs.numel() <= 120
        for row, (sample,) in enumerate(batch.samples):
            text, (label,) = (stores[side].document(sample).tolist() for side in stores)
            assert text[-1] == 2 and label in labelled.labels.values()
            padding = batch.inputs.shape[1] - len(text) - 1
            assert batch.inputs[row].tolist() == [*text[:-1], 3, 2, *[0] * padding]
            ignored = [IGNORED] * (len(text) - 1), [IGNORED] * (padding + 1)
            assert batch.targets[row].tolist() == [*ignored[0], label, *ignored[1]]


def test_texts_of_equal_length_come_with_both_labels(tmp_path: Path):
    """In the order of the files, a batch would hold one label only."""
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"{name}\n" * 64)
    corpus = make_corpus(tmp_path, labelled_config(("a", "b")))
    batches = list(Loader(corpus, BatchConfig(batch_tokens=48), epochs=1))
    assert len(batches) == 8
    for batch in batches:
        assert len(set(batch.targets[batch.targets != IGNORED].tolist())) == 2


def test_a_new_tokenizer_has_a_token_for_each_label_that_no_text_can_spell(labelled: Corpus):
    assert labelled.labels == {"fine": 4, "wet": 5}
    tokenizer = labelled.tokenizers["text"]
    assert tokenizer.vocab_size == 300
    assert not {4, 5} & set(tokenizer.encode("fine <fine> wet <wet>"))
    assert tokenizer.decode(tokenizer.encode("<fine>")) == "<fine>"


def test_a_given_tokenizer_writes_a_label_as_a_word_in_a_sentence():
    tokenizer = train_bpe(["so good and bad", "good"] * 9, 300, special_tokens=SPECIAL)
    (good,), (behind_a_blank,) = tokenizer.encode("good"), tokenizer.encode(" good")
    assert good != behind_a_blank
    assert label_ids(tokenizer, ["good", "bad", "g"]) == {
        "good": behind_a_blank,
        "bad": tokenizer.encode(" bad")[0],
        "g": tokenizer.encode("g")[0],
    }


def test_a_label_of_several_tokens_is_refused_with_them():
    tokenizer = train_bpe(["so good and bad"] * 9, 300, special_tokens=SPECIAL)
    with pytest.raises(
        DataError,
        match=r"labels: 'badx' must be one token with .* 2 of it: ' bad', 'x'; set data.label_as",
    ):
        label_ids(tokenizer, ["good", "badx"])


WRONG = {
    "format='text' gives no label": {"format": "text"},
    "labels=.* must be at least two different strings": {"labels": ("fine", "fine")},
    "labels=.* must not be empty, nor start": {"labels": ("fine", "wet ")},
    "labels=.* is for task='classification'": {"task": "masked-lm", "format": "text"},
    "format='labelled' is for task='classification'": {"task": "masked-lm", "labels": ()},
    "train=.* must have one entry for each of the 2 labels": {"train": ("a",)},
    "columns=.* must name 2 .*'label'": {"format": "jsonl", "columns": ("text",)},
    "special_tokens=.* must all differ .* label tokens": {"labels": ("fine", "mask")},
    "special_tokens=.* must name 4": {"special_tokens": SPECIAL[:3]},
    "vocab_size=261 must be a whole number of at least 262": {"vocab_size": 261},
}


@pytest.mark.parametrize("message", WRONG)
def test_settings_that_make_no_classification_are_refused(message: str):
    with pytest.raises(ConfigError, match=message):
        labelled_config(**{"train": ("a", "b"), **WRONG[message]})


def test_a_text_that_is_too_long_is_refused_and_never_cut(tmp_path: Path):
    config = labelled_config(write_labelled(tmp_path, 20), max_tokens=12)
    with pytest.raises(DataError, match=r"\d+ tokens, more than data\.max_tokens=12"):
        make_corpus(tmp_path, config)
    corpus = make_corpus(
        tmp_path / "more", replace(config, train=_absolute(tmp_path), max_tokens=None)
    )
    longest = corpus.facts("train").longest["text"]
    with pytest.raises(ConfigError, match=f"must hold the longest .* has {longest + 1} tokens"):
        Loader(corpus, BatchConfig(batch_tokens=longest))


def _absolute(folder: Path) -> tuple[str, ...]:
    return str(folder / "sun.txt"), str(folder / "rain.txt")


def test_the_command_shows_texts_with_a_mask_and_their_labels(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLEARHEAD_DATA", str(tmp_path))
    recipe = Recipe(
        name="mine",
        data=labelled_config(write_labelled(tmp_path, 20)),
        batches=BatchConfig(batch_tokens=200),
    )
    Path("mine.toml").write_text(recipe_toml(recipe), encoding="utf-8")
    assert main(["prepare", "mine.toml"]) == 0
    assert main(["data", "mine.toml"]) == 0
    shown = capsys.readouterr().out
    assert "<mask><eos>" in shown and "<fine>" in shown and "% of them padding" in shown
