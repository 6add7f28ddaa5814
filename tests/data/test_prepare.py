"""Prepare gives the same bytes whatever the processes and shards, and knows its own."""

import json
import multiprocessing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_corpora import write_pairs, write_text

from clearhead.config import DataConfig
from clearhead.data import shards
from clearhead.data.corpus import open_corpus
from clearhead.data.manifest import VERIFIED
from clearhead.data.prepare import prepare
from clearhead.data.shards import Job, Progress
from clearhead.errors import ClearheadError, DataError
from clearhead.files import sha256_of


def contents(folder: Path) -> dict[str, bytes]:
    """All that prepare leaves behind, but for the note of what was verified on this machine."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != VERIFIED
    }


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards of about 4 kB, encoded 1 kB at a time."""
    monkeypatch.setattr(shards, "CHUNK_BYTES", 1_000)
    monkeypatch.setattr(shards, "MEGABYTE", 4_000)
    monkeypatch.setattr(shards, "SMALL", 0)


def job_of(root: Path, name: str = "out", processes: int = 1, **settings: Any) -> Job:
    config = DataConfig(**{"vocab_size": 300, "shard_mb": 1, **settings})
    return Job(config=config, root=root, folder=root / name, processes=processes)


def pairs_job(root: Path, name: str = "out", **settings: Any) -> Job:
    train = write_pairs(root, 400)
    return job_of(root, name, task="pairs", format="parallel", train=train, **settings)


@pytest.mark.usefixtures("small_pieces")
def test_the_number_of_processes_changes_no_byte(tmp_path: Path):
    manifests = [prepare(replace(pairs_job(tmp_path, f"out{n}"), processes=n)) for n in (1, 2, 3)]
    assert len(manifests[0].splits["train"].files["source"]) > 4
    assert contents(tmp_path / "out1") == contents(tmp_path / "out2") == contents(tmp_path / "out3")


def test_a_tokenizer_that_was_made_for_other_settings_is_not_kept(tmp_path: Path):
    made = prepare(pairs_job(tmp_path))
    (tmp_path / "out/manifest.json").unlink()
    with pytest.raises(DataError, match="no record of what it was made from; choose"):
        prepare(pairs_job(tmp_path, vocab_size=310))
    again = prepare(pairs_job(tmp_path, vocab_size=310), overwrite=True)
    sizes = [each.tokenizers["source"].vocab_size for each in (made, again)]
    assert sizes[0] <= 300 < sizes[1]


@pytest.mark.usefixtures("small_pieces")
def test_a_process_that_is_killed_while_it_encodes_is_named_and_the_same_command_continues(
    tmp_path: Path,
):
    job = replace(pairs_job(tmp_path), processes=2)

    def kill(_: Progress) -> None:
        for process in multiprocessing.active_children():
            process.kill()

    with pytest.raises(ClearheadError, match="was killed, perhaps for lack of memory; run the"):
        prepare(replace(job, report=kill))
    prepare(job)
    prepare(pairs_job(tmp_path, "whole"))
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


@pytest.mark.usefixtures("small_pieces")
def test_the_tokens_are_those_of_each_line_ended_by_eos(tmp_path: Path):
    prepare(pairs_job(tmp_path))
    corpus = open_corpus(tmp_path / "out")
    for side in ("source", "target"):
        lines = (tmp_path / f"{side}.txt").read_text(encoding="utf-8").splitlines()
        store, tokenizer = corpus.store("train", side), corpus.tokenizers[side]
        assert store.n_documents == len(lines)
        for number, line in enumerate(lines):
            document = store.document(number).tolist()
            assert document[-1] == tokenizer.eos_id
            assert tokenizer.decode(document[:-1]) == line
        facts = corpus.facts("train")
        assert facts.longest[side] == store.lengths(np.arange(len(lines))).max()


def test_a_manifest_proves_every_input_and_output(tmp_path: Path):
    manifest = prepare(pairs_job(tmp_path))
    for each in manifest.inputs:
        assert each["sha256"] == sha256_of(tmp_path / each["path"])
        assert each["bytes"] == (tmp_path / each["path"]).stat().st_size
    hashes = manifest.hashes()
    assert {name: sha256_of(tmp_path / "out" / name) for name in hashes} == hashes
    assert set(hashes) | {"manifest.json"} == set(contents(tmp_path / "out"))
    assert set(manifest.versions) == {"clearhead", "tokenizers"}


class StoppedError(Exception):
    pass


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("stops", [(1,), (9,), (3, 3, 3), (12, 1, 25)])
def test_a_run_that_was_stopped_ends_with_the_same_bytes(tmp_path: Path, stops: tuple[int, ...]):
    settings = {"skip": ("too-long", "blank"), "max_tokens": 20, "valid": write_pairs(tmp_path, 9)}
    prepare(pairs_job(tmp_path, "whole", **settings))
    for stop in stops:
        job = pairs_job(tmp_path, "broken", **settings)
        with pytest.raises(StoppedError):
            prepare(replace(job, report=stop_after(stop)))
    prepare(pairs_job(tmp_path, "broken", **settings))
    assert contents(tmp_path / "whole") == contents(tmp_path / "broken")
    skipped = json.loads((tmp_path / "broken/manifest.json").read_text())["splits"]["train"]
    assert skipped["skipped"]["too-long"] > 0


def stop_after(n: int):
    """Raises at the n-th chunk that is encoded."""
    seen: list[Progress] = []

    def report(progress: Progress) -> None:
        if progress.tokens:
            seen.append(progress)
            if len(seen) > n:
                raise StoppedError

    return report


@pytest.mark.usefixtures("small_pieces")
def test_a_second_run_redoes_at_most_one_shard(tmp_path: Path):
    total = sum(prepare(pairs_job(tmp_path, "whole")).splits["train"].tokens.values())
    with pytest.raises(StoppedError):
        prepare(replace(pairs_job(tmp_path, "broken"), report=stop_after(12)))
    written: list[int] = []
    job = pairs_job(tmp_path, "broken")
    manifest = prepare(replace(job, report=lambda progress: written.append(progress.tokens)))
    shard_tokens = [
        sum(each.tokens for each in files)
        for files in zip(*manifest.splits["train"].files.values())
    ]
    assert max(written) <= total - sum(shard_tokens[:2])


def test_a_finished_folder_is_only_checked(tmp_path: Path):
    prepare(pairs_job(tmp_path))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.ds")}
    prepare(pairs_job(tmp_path))
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.ds")}


def test_other_settings_or_inputs_are_refused_with_what_changed(tmp_path: Path):
    prepare(pairs_job(tmp_path))
    with pytest.raises(DataError, match=r"data\.vocab_size was 300, is 290.*overwrite=True"):
        prepare(pairs_job(tmp_path, vocab_size=290))
    job = pairs_job(tmp_path)
    content = (tmp_path / "source.txt").read_text()
    (tmp_path / "source.txt").write_text(content.replace("Hund", "Mund"))
    with pytest.raises(DataError, match=r"source\.txt has changed"):
        prepare(job)
    prepare(job, overwrite=True)


@pytest.mark.parametrize("overwrite", [False, True])
def test_files_that_prepare_has_not_made_stay(tmp_path: Path, overwrite: bool):
    job = pairs_job(tmp_path)
    prepare(job)
    places = ("notes.part", "deep/er/draft.part", "train/notes.txt", "train/a.ds", ".work/mine.txt")
    for place in places:
        path = tmp_path / "out" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    left_by_a_kill = tmp_path / "out" / "train" / f"00000.source.ds.{'0f' * 8}.part"
    left_by_a_kill.write_text("half")
    prepare(job, overwrite=overwrite)
    assert [(tmp_path / "out" / place).read_text() for place in places] == ["mine"] * len(places)
    assert not left_by_a_kill.exists()
    assert not (tmp_path / "out" / ".work" / "lock").exists()


def test_two_runs_at_once_are_refused(tmp_path: Path):
    job = pairs_job(tmp_path)

    def meddle(progress: Progress) -> None:
        if progress.stage == "train":
            with pytest.raises(DataError, match="another process is preparing"):
                prepare(job)

    prepare(replace(job, report=meddle))


def test_a_document_with_too_many_tokens_is_named(tmp_path: Path):
    train = write_text(tmp_path, 50)
    with pytest.raises(DataError, match=r"text\.txt, line 5: \d+ tokens, more than data\.max_tok"):
        prepare(job_of(tmp_path, train=(train,), max_tokens=30))


def test_a_split_of_which_nothing_is_left_is_an_error(tmp_path: Path):
    train = write_text(tmp_path, 5)
    (tmp_path / "blank.txt").write_text("\n\n")
    job = job_of(tmp_path, train=(train,), valid=("blank.txt",), skip=("blank",))
    rule = r"data\.valid: no document of the 1 input .* is left.*: 2 blank; name a file with text"
    with pytest.raises(DataError, match=rule):
        prepare(job)


@pytest.mark.parametrize(
    ("content", "settings", "message"),
    [
        (b"long\nlonger\n", {"max_bytes": 3, "skip": ("too-long",)}, "2 too-long; .*bytes = 3$"),
        (b"longer\n", {"max_tokens": 2, "skip": ("too-long",)}, "1 too-long; .*tokens = 2$"),
        (b"@@\n@@\n", {"drop": ("@@",)}, r"2 dropped; leave something out of data\.drop"),
        (b"\xff\n", {"skip": ("invalid-utf8",)}, "1 invalid-utf8; fix the text; to see"),
        (b"", {}, "the files are empty; name files with text"),
    ],
)
def test_why_nothing_is_left_is_told_with_what_to_do(
    tmp_path: Path, content: bytes, settings: dict[str, Any], message: str
):
    (tmp_path / "train.txt").write_text("a\n")
    (tmp_path / "valid.txt").write_bytes(content)
    job = job_of(tmp_path, train=("train.txt",), valid=("valid.txt",), **settings)
    with pytest.raises(DataError, match=f"no document .* is left.*{message}"):
        prepare(job)


def test_a_share_that_takes_every_line_is_told(tmp_path: Path):
    (tmp_path / "one.txt").write_text("one line\n")
    with pytest.raises(DataError, match=r"data\.train: .*; the other splits take all lines"):
        prepare(job_of(tmp_path, train=("one.txt",), held_out=0.1))


def test_separate_vocabularies_give_two_tokenizers(tmp_path: Path):
    manifest = prepare(pairs_job(tmp_path, vocabularies="separate"))
    files = {side: facts.file for side, facts in manifest.tokenizers.items()}
    assert files == {"source": "tokenizer.source.json", "target": "tokenizer.target.json"}
    assert len({facts.sha256 for facts in manifest.tokenizers.values()}) == 2


def test_a_tokenizer_from_a_file_is_used_as_it_is(tmp_path: Path):
    prepare(pairs_job(tmp_path))
    text = write_text(tmp_path, 20)
    job = job_of(
        tmp_path,
        "text",
        train=(text,),
        tokenizer="file",
        tokenizer_file="out/tokenizer.json",
        vocab_size=None,
    )
    prepare(job)
    assert (tmp_path / "text/tokenizer.json").read_bytes() == (
        tmp_path / "out/tokenizer.json"
    ).read_bytes()


def test_pairs_refuse_a_tokenizer_that_pads_with_its_end(tmp_path: Path):
    prepare(pairs_job(tmp_path))
    job = pairs_job(
        tmp_path,
        "other",
        tokenizer="file",
        tokenizer_file="out/tokenizer.json",
        special_tokens=("<eos>", "<bos>", "<eos>"),
    )
    with pytest.raises(DataError, match="padding is the same token as start or end"):
        prepare(job)


def test_the_tokenizer_learns_from_the_head_of_every_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("clearhead.data.prepare.MEGABYTE", 100)
    for name, letter in (("a", "x"), ("b", "y")):
        (tmp_path / f"{name}.txt").write_text(f"{letter * 60}\n" * 3 + "zzzz\n")
    job = job_of(tmp_path, train=("a.txt", "b.txt"), tokenizer="character", sample_mb=1)
    prepare(replace(job, config=replace(job.config, vocab_size=None)))
    vocabulary = open_corpus(tmp_path / "out").tokenizers["text"].library.get_vocab()
    assert {"x", "y"} <= set(vocabulary)
    assert "z" not in vocabulary


def test_a_prepare_that_failed_does_not_block_the_corrected_one(tmp_path: Path):
    source, target = tmp_path / "a.source", tmp_path / "a.target"
    source.write_text("ein Hund\nzwei\n" * 20)
    target.write_text("a dog\ntwo\n" * 19 + "one more\n\n")
    wrong = DataConfig(
        task="pairs", format="parallel", train=(str(source), str(target)), vocab_size=300
    )
    folder = tmp_path / "prepared"
    with pytest.raises(DataError, match="blank"):
        prepare(Job(config=wrong, root=tmp_path, folder=folder))
    assert (folder / ".work").is_dir()
    right = replace(wrong, skip=("blank",))
    assert prepare(Job(config=right, root=tmp_path, folder=folder)).splits["train"].documents == 39
    with pytest.raises(DataError, match=r"was prepared from something else: data\.skip was"):
        prepare(Job(config=wrong, root=tmp_path, folder=folder))  # a finished one is kept


def test_a_tokenizer_of_a_run_that_is_not_trained_names_that_run(tmp_path: Path):
    (tmp_path / "a.txt").write_text("ein Hund\n")
    config = DataConfig(
        train=("a.txt",), tokenizer="file", tokenizer_file="runs/first-run/model/tokenizer.json"
    )
    with pytest.raises(DataError, match="run 'first-run', which must be trained first: clearhead"):
        prepare(Job(config=config, root=tmp_path, folder=tmp_path / "prepared"))
    config = replace(config, tokenizer_file="mine.json")
    with pytest.raises(DataError, match=r"there is no .*mine\.json; check the path"):
        prepare(Job(config=config, root=tmp_path, folder=tmp_path / "other"))
