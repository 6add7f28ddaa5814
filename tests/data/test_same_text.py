"""The text that a recipe names is the one that its data and its run were made from, or it is
refused."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from small_corpora import write_pairs

from clearhead.config import DataConfig
from clearhead.data import same_text
from clearhead.data.corpus import Corpus, open_corpus
from clearhead.data.manifest import MANIFEST
from clearhead.data.prepare import prepare
from clearhead.data.same_text import (
    check_text_of_data,
    check_text_of_run,
    data_of_run,
    is_text_of_run,
    note_text,
)
from clearhead.data.shards import Job
from clearhead.errors import DataError


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataConfig:
    monkeypatch.setenv("CLEARHEAD_DATA", str(tmp_path))
    first = tmp_path / "first"
    first.mkdir()
    names = write_pairs(first, 60)
    train = tuple(str(first / name) for name in names)
    return DataConfig(
        task="pairs",
        format="parallel",
        train=train,
        vocab_size=300,
        held_out=0.2,
        held_out_test=0.2,
    )


@pytest.fixture
def corpus(config: DataConfig, tmp_path: Path) -> Corpus:
    prepare(Job(config=config, root=tmp_path, folder=tmp_path / "out"))
    return open_corpus(tmp_path / "out")


def elsewhere(config: DataConfig, folder: Path, *, upper: bool = False) -> DataConfig:
    """The same names in another folder, with the same bytes or others."""
    folder.mkdir()
    for path in map(Path, config.train):
        text = path.read_text(encoding="utf-8")
        (folder / path.name).write_text(text.upper() if upper else text, encoding="utf-8")
    return replace(config, train=tuple(str(folder / Path(path).name) for path in config.train))


def test_text_that_has_changed_since_is_named(corpus: Corpus, config: DataConfig):
    source, target = map(Path, config.train)
    text = source.read_bytes()
    source.write_bytes(text.upper())
    with pytest.raises(DataError, match=r"different text: .*source\.txt has changed; .*overwrite="):
        check_text_of_data(corpus, config)
    target.write_bytes(b"one more\n" + text)
    with pytest.raises(DataError, match=r"source\.txt has changed; .*target\.txt has changed;"):
        check_text_of_data(corpus, config)
    source.write_bytes(text)
    target.unlink()
    check_text_of_data(corpus, config)  # the same bytes again, and a text that is gone


def test_files_of_the_same_names_are_the_same_text_only_if_their_bytes_are(
    corpus: Corpus, config: DataConfig, tmp_path: Path
):
    check_text_of_data(corpus, elsewhere(config, tmp_path / "moved"))
    other = elsewhere(config, tmp_path / "other", upper=True)
    with pytest.raises(DataError, match=r"other/source\.txt is another file; .*give the recipe"):
        check_text_of_data(corpus, other)


def test_text_that_was_not_touched_is_not_hashed(
    corpus: Corpus, config: DataConfig, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(same_text, "sha256_of", lambda path: pytest.fail(f"hashed {path}"))
    earlier = (corpus.folder / MANIFEST).stat().st_mtime_ns - 1
    for path in config.train:
        os.utime(path, ns=(earlier, earlier))
    check_text_of_data(corpus, config)


def test_a_tokenizer_of_the_same_name_is_compared_too(
    corpus: Corpus, config: DataConfig, tmp_path: Path
):
    made = corpus.folder / "tokenizer.json"
    config = replace(config, tokenizer="file", tokenizer_file=str(made), vocab_size=None)
    prepare(Job(config=config, root=tmp_path, folder=tmp_path / "again"))
    again = open_corpus(tmp_path / "again")
    check_text_of_data(again, config)
    content = json.loads(made.read_text(encoding="utf-8"))
    content["model"]["merges"].pop()
    made.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(DataError, match=r"tokenizer\.json is another tokenizer"):
        check_text_of_data(again, config)
    made.unlink()
    check_text_of_data(again, config)


def test_what_is_held_out_of_changed_text_is_not_a_test_of_the_run(
    corpus: Corpus, config: DataConfig, tmp_path: Path
):
    check_text_of_run(tmp_path, config, "test")  # a run that has no note
    noted = tmp_path / same_text.TEXT_FILES
    noted.write_text('{"inputs": [{"path": "x", "bytes": 1, "sha256": "y"}]}', encoding="utf-8")
    note_text(tmp_path, corpus, begins=True)  # the first start had ended at once
    check_text_of_run(tmp_path, config, "test")
    assert is_text_of_run(tmp_path, corpus.manifest.inputs) and not is_text_of_run(tmp_path, [])
    source = Path(config.train[0])
    source.write_text("".join(source.read_text(encoding="utf-8").splitlines(True)[:30]))
    with pytest.raises(DataError, match=r"trained on different text: .*source\.txt has changed"):
        check_text_of_run(tmp_path, config, "test")
    check_text_of_run(tmp_path, replace(config, held_out_test=0.0, test=config.train), "test")


def test_the_data_of_a_run_are_found_by_its_note_its_name_or_their_text(
    corpus: Corpus, tmp_path: Path
):
    prepared, run = corpus.folder.parent, tmp_path / "runs" / "b"
    run.mkdir(parents=True)
    assert data_of_run(run, prepared) == prepared / "b"
    note_text(run, corpus, begins=True)
    assert data_of_run(run, tmp_path / "elsewhere") == corpus.folder
    inputs = {"inputs": corpus.manifest.inputs}  # a run of version 0.2 has no more in its note
    (run / same_text.TEXT_FILES).write_text(json.dumps(inputs), encoding="utf-8")
    assert data_of_run(run, prepared) == corpus.folder
    for note in ({"prepared": 5}, {"prepared": "a\0b"}, {"prepared": "gone"}, {"inputs": [1]}):
        (run / same_text.TEXT_FILES).write_text(json.dumps(note), encoding="utf-8")
        assert data_of_run(run, prepared) == prepared / "b"


@pytest.mark.parametrize("note", ["", "[]", '{"inputs": 5}', '{"inputs": [{"path": 3}]}', "{}"])
def test_a_note_that_is_none_is_as_good_as_absent(note: str, config: DataConfig, tmp_path: Path):
    (tmp_path / same_text.TEXT_FILES).write_text(note, encoding="utf-8")
    check_text_of_run(tmp_path, config, "test")
