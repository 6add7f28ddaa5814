"""What a checkpoint claims is on the disk before the checkpoint is, whatever a power cut takes."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from clearhead.cli import main
from clearhead.config import recipe_toml
from tests.data.small_corpora import write_text
from tests.training.small import TEXT, with_train


@pytest.mark.parametrize("async_save", [False, True])
def test_every_line_of_a_checkpoints_steps_is_synced_before_it_has_its_name(
    async_save: bool, tmp_path: Path, monkeypatch, capsys
):
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("CLEARHEAD_DATA", str(tmp_path / "data"))
    write_text(tmp_path / "data", 60)
    recipe = with_train(TEXT, steps=7, save_every=2, keep=9, async_save=async_save)
    path, run = tmp_path / "r.toml", tmp_path / "run"
    path.write_text(recipe_toml(recipe), encoding="utf-8")
    metrics = run / "metrics.jsonl"
    on_disk = {"bytes": b"", "names": set()}
    fsync, rename = os.fsync, Path.rename
    named: dict[int, list[int]] = {}

    def traced_fsync(descriptor: int) -> None:
        fsync(descriptor)
        about = os.fstat(descriptor)
        if metrics.exists() and about.st_ino == metrics.stat().st_ino:
            on_disk["bytes"] = metrics.read_bytes()
        elif run.exists() and about.st_ino == run.stat().st_ino:
            on_disk["names"] = set(os.listdir(run))

    def traced_rename(self: Path, target: Path) -> Path:
        if target.name.startswith("step-") and self.name.startswith(".step-"):
            assert "metrics.jsonl" in on_disk["names"]
            lines = on_disk["bytes"].decode().splitlines()
            named[int(target.name[5:])] = [json.loads(line)["step"] for line in lines]
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", traced_fsync)
    monkeypatch.setattr(Path, "rename", traced_rename)
    where = ["--prepared", str(tmp_path / "prepared"), "--folder", str(run)]
    assert main(["train", str(path), *where]) == 0
    assert sorted(named) == [2, 4, 6, 7]
    for step, lines in named.items():
        assert lines[:step] == list(range(1, step + 1)), f"checkpoint {step} claims lines"
    written = metrics.read_bytes().splitlines(keepends=True)
    for step in named:  # it keeps the hash of its own lines, however many follow meanwhile
        manifest = json.loads((run / f"checkpoints/step-{step:08}/manifest.json").read_text())
        own = b"".join(line for line in written if json.loads(line)["step"] <= step)
        assert manifest["metrics_sha256"] == hashlib.sha256(own).hexdigest()


def test_a_checkpoint_whose_lines_do_not_fit_on_the_disk_is_not_named(tmp_path: Path):
    from clearhead.training.report import RunFiles

    files = RunFiles(tmp_path, log_every=1)
    files.metrics.file.close()
    files.metrics.file = open("/dev/full", "ab", buffering=0)  # noqa: SIM115
    files.metrics.add('{"step": 1}')
    with pytest.raises(OSError, match=r"No space left on device.*metrics\.jsonl"):
        files.sync()
    files.metrics.file.close()
    files.metrics.file = open(tmp_path / "metrics.jsonl", "ab", buffering=0)  # noqa: SIM115
    files.sync()
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 1}\n'
    files.close()
