"""Attacks by links: a name in a folder that was sent stands for a file of the victim's."""

import errno
import http.server
import json
import os
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from clearhead.cli import main
from clearhead.errors import ClearheadError, DataError
from clearhead.files import locked, write_whole
from clearhead.intake.fetch import fetch
from clearhead.intake.proposal import propose
from clearhead.interop.folders import whole_or_absent
from tests.security.conftest import MINE, Sent
from tests.security.test_small_files_large_costs import outcome


def link(place: Path, target: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        place.rename(place.with_name(place.name + "-was"))
    place.unlink(missing_ok=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)


@pytest.mark.parametrize(
    "name", [".lock", "log.txt", "metrics.jsonl", "metrics.part", "recipe.toml", "model/x"]
)
def test_train_writes_through_no_link(name: str, sent: Sent, capsys):
    link(sent.run / name, sent.mine)
    # What goes into the linked file is the sender's choice.
    if name != "metrics.jsonl":
        line = '{"step": 0, "x": "$(touch code-has-run)"}\n'
        (sent.run / "metrics.jsonl").write_text(line)
    code = sent.train()
    assert sent.mine.read_text() == MINE
    assert code == 2
    assert "is a link" in capsys.readouterr().err


@pytest.mark.parametrize("name", [".lock", "log.txt", "metrics.jsonl"])
def test_train_changes_no_file_that_has_another_name(name: str, sent: Sent, capsys):
    """Lines are appended to it in its place."""
    (sent.run / name).unlink(missing_ok=True)
    (sent.run / name).hardlink_to(sent.mine)
    code = sent.train()
    assert sent.mine.read_text() == MINE
    assert code == 2
    assert "is a hard link" in capsys.readouterr().err


def test_a_file_that_is_replaced_may_have_another_name(sent: Sent):
    """Another run may share its files with this one; each gets its own when they change."""
    before = (sent.run / "recipe.toml").read_text()
    (sent.run.parent / "shared.toml").hardlink_to(sent.run / "recipe.toml")
    assert sent.train() == 0
    assert (sent.run.parent / "shared.toml").read_text() == before
    assert (sent.run / "recipe.toml").read_text() != before


@pytest.mark.parametrize("name", ["checkpoints", "model", ".model.new"])
def test_train_writes_into_no_linked_folder(name: str, sent: Sent, capsys):
    elsewhere = sent.mine.parent
    link(sent.run / name, elsewhere)
    code = sent.train()
    assert sorted(os.listdir(elsewhere)) == ["profile"]
    assert code == 2
    assert "is a link" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", [".work/lock", ".work/hashes.json", ".verified.json", "tokenizer.json", "train/x.part"]
)
def test_prepare_writes_through_no_link(name: str, sent: Sent, capsys):
    (sent.prepared / "manifest.json").unlink()  # there is something left to do
    link(sent.prepared / name, sent.mine)
    code = sent.prepare()
    assert sent.mine.read_text() == MINE
    assert code == 2
    assert "is a link" in capsys.readouterr().err


@pytest.mark.parametrize("name", [".work", "train"])
def test_prepare_writes_into_no_linked_folder(name: str, sent: Sent, capsys):
    (sent.prepared / "manifest.json").unlink()
    elsewhere = sent.mine.parent
    link(sent.prepared / name, elsewhere)
    code = sent.prepare()
    assert sorted(os.listdir(elsewhere)) == ["profile"]
    assert code == 2
    assert "is a link" in capsys.readouterr().err


def test_a_download_writes_through_no_link(tmp_path: Path, sent: Sent):
    (tmp_path / "web").mkdir()
    (tmp_path / "web/corpus.gz").write_bytes(b"of the sender's choice")
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path / "web")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        part = tmp_path / "data/corpus.gz.part"
        url = f"http://127.0.0.1:{server.server_port}/corpus.gz"
        try:
            link(part, sent.mine)
            with pytest.raises(ClearheadError, match="is a link"):
                fetch(url, tmp_path / "data/corpus.gz", size=99, sha256="0" * 64)
            part.unlink()
            part.hardlink_to(sent.mine)
            with pytest.raises(ClearheadError, match="is a hard link"):
                fetch(url, tmp_path / "data/corpus.gz", size=99, sha256="0" * 64)
        finally:
            server.shutdown()
            assert sent.mine.read_text() == MINE


def test_a_run_a_prepared_folder_and_a_plan_may_be_reached_by_a_link(sent: Sent, tmp_path: Path):
    """What the user names is the user's choice, on another disk perhaps."""
    (tmp_path / "disk").symlink_to(sent.run)
    (tmp_path / "prepared").symlink_to(sent.prepared)
    there = sent._replace(run=tmp_path / "disk", prepared=tmp_path / "prepared")
    assert there.prepare() == 0
    assert there.train() == 0
    assert main(["runs", str(sent.run)]) == 0


@pytest.mark.parametrize(
    "name", ["{mine}", "../../home/profile", "..\\..\\home", "C:profile", "\\home\\profile"]
)
def test_a_manifest_names_no_file_outside_its_folder(name: str, sent: Sent, capsys):
    path = sent.prepared / "manifest.json"
    manifest = json.loads(path.read_text())
    (tokenizer,) = manifest["tokenizers"].values()
    tokenizer["file"] = name.format(mine=sent.mine)
    path.write_text(json.dumps(manifest))
    assert sent.train() == 2
    assert "which is not in its folder" in capsys.readouterr().err.replace("\n", " ")


def test_a_finished_file_can_be_read_by_those_whom_the_umask_allows(tmp_path: Path):
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "file", "text")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


def test_a_file_that_could_not_be_written_is_as_it_was(tmp_path: Path, monkeypatch):
    write_whole(tmp_path / "file", "before")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(tmp_path / "file", "after")
    assert (tmp_path / "file").read_text() == "before"
    assert os.listdir(tmp_path) == ["file"]


def test_a_lock_is_refused_while_another_process_holds_it_and_dies_with_it(tmp_path: Path):
    hold = (
        "import sys, time; from pathlib import Path; from clearhead.files import locked\n"
        "with locked(Path(sys.argv[1]), ''): print('held', flush=True); time.sleep(600)"
    )
    lock = tmp_path / "lock"
    process = subprocess.Popen(
        [sys.executable, "-c", hold, str(lock)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    try:
        with pytest.raises(DataError, match="somebody is at it"), locked(lock, "somebody is at it"):
            pass
    finally:
        process.kill()
        process.wait()
    with locked(lock, "somebody is at it"):
        pass


def test_what_a_killed_export_left_is_removed_when_the_next_one_starts(tmp_path: Path):
    """What belongs to a process that still works stays, and so does what is not a folder."""
    hold = (
        "import sys, time; from pathlib import Path\n"
        "from clearhead.interop.folders import whole_or_absent\n"
        "with whole_or_absent(Path(sys.argv[1])) as new:\n"
        "    (new / 'half').touch(); print(new.name, flush=True); time.sleep(600)"
    )
    started = [sys.executable, "-c", hold, str(tmp_path / "hf")]
    killed, working = (
        subprocess.Popen(started, stdout=subprocess.PIPE, text=True) for _ in range(2)
    )
    assert killed.stdout is not None and working.stdout is not None
    try:
        left, kept = killed.stdout.readline().strip(), working.stdout.readline().strip()
        assert {path.name for path in tmp_path.iterdir()} == {left, kept}
        killed.kill()
        killed.wait()
        (tmp_path / "mine").mkdir()
        (tmp_path / ".hf.unfinished-12345678").symlink_to(tmp_path / "mine")
        (tmp_path / ".hf.unfinished-of-mine").mkdir()
        with whole_or_absent(tmp_path / "hf") as new:
            (new / "whole").touch()
    finally:
        killed.kill()
        working.kill()
        working.wait()
    mine = {"mine", ".hf.unfinished-12345678", ".hf.unfinished-of-mine"}
    assert {path.name for path in tmp_path.iterdir()} == {"hf", kept, *mine}
    assert os.listdir(tmp_path / "hf") == ["whole"]


RUN_FILES = [".lock", "log.txt", "metrics.jsonl", "recipe.toml", "model/config.json"]
CHECKPOINT_FILES = [".metadata", "__0_0.distcp", "manifest.json", "manifest.sha256"]


def pipe(place: Path) -> None:
    place.unlink(missing_ok=True)
    os.mkfifo(place)


@pytest.mark.parametrize("name", [*RUN_FILES, *(f"checkpoint/{name}" for name in CHECKPOINT_FILES)])
def test_train_waits_for_no_pipe(name: str, sent: Sent):
    newest = max((sent.run / "checkpoints").glob("step-*"))
    pipe(newest / name.split("/")[1] if name.startswith("checkpoint/") else sent.run / name)
    answer = outcome(sent.train, seconds=20, megabytes=4000)
    assert answer == "returned 2"


@pytest.mark.parametrize("name", ["manifest.json", ".verified.json", "tokenizer.json", "train/x"])
def test_prepare_and_train_wait_for_no_pipe_in_prepared_data(name: str, sent: Sent):
    pipe(sent.prepared / name)
    assert outcome(sent.train, seconds=20, megabytes=4000) == "returned 2"
    assert outcome(sent.prepare, seconds=20, megabytes=4000) == "returned 2"


@pytest.mark.parametrize("name", ["manifest.json", "__0_0.distcp"])
def test_train_reads_no_device_in_the_place_of_a_checkpoints_file(name: str, sent: Sent):
    """A link to it: only root could make the device itself."""
    newest = max((sent.run / "checkpoints").glob("step-*"))
    link(newest / name, Path("/dev/zero"))
    assert outcome(sent.train, seconds=20, megabytes=4000) == "returned 2"


def test_a_run_shows_no_pipe_and_no_link(sent: Sent, tmp_path: Path):
    pipe(sent.run / "metrics.jsonl")
    where = ["runs", str(sent.run)]
    assert outcome(lambda: main(where), seconds=20, megabytes=4000) == "returned 2"
    link(sent.run / "metrics.jsonl", sent.mine)
    assert outcome(lambda: main(where), seconds=20, megabytes=4000) == "returned 2"


def test_train_removes_no_file_that_it_has_not_made(sent: Sent):
    mine = sent.run / "notes.part"
    mine.write_text("of the victim")
    half = sent.run / f"metrics.jsonl.{'0' * 16}.part"
    half.write_text("of a run that was killed")
    assert sent.train() == 0
    assert mine.read_text() == "of the victim" and not half.exists()


def test_a_pipe_instead_of_a_table_is_refused_at_once(tmp_path: Path):
    pipe(tmp_path / "text.jsonl")
    with pytest.raises(DataError, match="is a pipe or a device"):
        propose(tmp_path / "text.jsonl")


@pytest.mark.parametrize("name", ["manifest.json", ".verified.json"])
def test_a_folder_in_the_place_of_a_file_is_named(
    name: str, sent: Sent, capsys: pytest.CaptureFixture[str]
):
    (sent.prepared / name).unlink(missing_ok=True)
    (sent.prepared / name).mkdir()
    assert sent.train() == 2
    assert "is a folder where a file should be" in capsys.readouterr().err
