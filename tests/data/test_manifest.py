"""Data whose bytes changed is refused, with what changed; data that did not is opened at once."""

import os
import shutil
import time
from pathlib import Path

import pytest
from small_corpora import write_pairs

from clearhead.config import DataConfig
from clearhead.data import manifest as manifests
from clearhead.data.corpus import open_corpus
from clearhead.data.manifest import VERIFIED
from clearhead.data.prepare import prepare
from clearhead.data.shards import Job
from clearhead.errors import DataError


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    train = write_pairs(tmp_path, 60)
    config = DataConfig(task="pairs", format="parallel", train=train, vocab_size=300)
    prepare(Job(config=config, root=tmp_path, folder=tmp_path / "out"))
    return tmp_path / "out"


def flip_a_byte(path: Path) -> None:
    """The same name, the same size, and the times of before."""
    about, content = path.stat(), bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    with path.open("r+b") as file:
        file.write(content)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


@pytest.mark.parametrize(
    "name", ["train/00000.source.ds", "train/00000.target.ds.index", "tokenizer.json"]
)
@pytest.mark.parametrize("opened_before", [False, True])
def test_one_changed_byte_is_found(prepared: Path, name: str, opened_before: bool):
    if opened_before:
        open_corpus(prepared)
    flip_a_byte(prepared / name)
    with pytest.raises(
        DataError,
        match=rf"{name} has changed; prepare again: clearhead\.prepare\(…, overwrite=True\)",
    ):
        open_corpus(prepared)


def test_a_missing_file_is_named(prepared: Path):
    (prepared / "train/00000.target.ds").unlink()
    with pytest.raises(DataError, match=r"train/00000\.target\.ds is missing"):
        open_corpus(prepared)


def test_what_was_verified_and_not_touched_is_not_hashed_again(
    prepared: Path, monkeypatch: pytest.MonkeyPatch
):
    time.sleep(2 * manifests.TICK_NS / 1e9)  # what changed just now is never trusted
    open_corpus(prepared)
    monkeypatch.setattr(manifests, "sha256_of", lambda path: pytest.fail(f"hashed {path}"))
    open_corpus(prepared)


def test_of_a_folder_that_can_only_be_read_the_note_is_in_the_cache(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "access", lambda *_: False)
    (prepared / VERIFIED).unlink()
    time.sleep(2 * manifests.TICK_NS / 1e9)
    open_corpus(prepared)
    assert not (prepared / VERIFIED).exists()
    monkeypatch.setattr(manifests, "sha256_of", lambda path: pytest.fail(f"hashed {path}"))
    open_corpus(prepared)


def test_a_copy_is_hashed_once_and_opens(prepared: Path, tmp_path: Path):
    copy = Path(shutil.copytree(prepared, tmp_path / "copy"))
    assert open_corpus(copy).manifest.fingerprint == open_corpus(prepared).manifest.fingerprint
    flip_a_byte(copy / "tokenizer.json")
    with pytest.raises(DataError, match=r"tokenizer\.json has changed"):
        open_corpus(copy)


def test_a_folder_that_cannot_be_written_to_still_opens(
    prepared: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
):
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("CLEARHEAD_CACHE", str(cache))
    monkeypatch.setattr("os.access", lambda *_: False)  # chmod forbids nothing to root
    (prepared / VERIFIED).unlink()
    open_corpus(prepared)
    assert not (prepared / VERIFIED).exists()
    assert len(list((cache / "verified").iterdir())) == 1


def test_a_folder_without_a_manifest_says_what_to_run(tmp_path: Path):
    with pytest.raises(DataError, match=r"holds no prepared data.*clearhead\.prepare\(recipe\)"):
        open_corpus(tmp_path)


def test_a_manifest_of_another_format_is_refused(prepared: Path):
    path = prepared / "manifest.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 99'))
    with pytest.raises(DataError, match="has format 99, but this clearhead reads 1"):
        open_corpus(prepared)


@pytest.mark.parametrize("instead_of", ["1000000000", '{"no_setting": 1}'])
def test_settings_that_cannot_stand_on_top_of_a_recipe_are_refused(prepared: Path, instead_of: str):
    path = prepared / "manifest.json"
    path.write_text(path.read_text().replace('"instead_of": {}', f'"instead_of": {instead_of}'))
    with pytest.raises(DataError, match="is not a manifest"):
        open_corpus(prepared)
