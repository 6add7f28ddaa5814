"""Attacks by a checkpoint: code in its pickles, names that lead out of its folder.

The attacker recomputes the manifest: its hashes prove that no byte was damaged, not who wrote it.
"""

import hashlib
import io
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path, PosixPath
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    _MEM_FORMAT_ENCODING,
    BytesStorageMetadata,
    MetadataIndex,
)

from clearhead.cli import main
from clearhead.training.checkpoint_index import read_index
from clearhead.training.report import read_metrics
from tests.security.conftest import Sent

BEFORE = Path(__file__).parent / "written_before"


class Payload:
    """Runs a command when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.marker}",)


def steps(sent: Sent) -> list[Path]:
    return sorted((sent.run / "checkpoints").glob("step-*"))


def reseal(step: Path, files: dict[str, str] | None = None) -> None:
    """The manifest of what is there now, or of what the attacker says is there."""
    manifest = json.loads((step / "manifest.json").read_text())
    if files is None:
        names = [path.name for path in step.iterdir() if "manifest" not in path.name]
        files = {name: hashlib.sha256((step / name).read_bytes()).hexdigest() for name in names}
    text = json.dumps({**manifest, "files": files}, indent=1, ensure_ascii=False) + "\n"
    (step / "manifest.json").write_text(text)
    (step / "manifest.sha256").write_text(hashlib.sha256(text.encode()).hexdigest() + "\n")


def changed_index(step: Path, marker: Path) -> None:
    (step / ".metadata").write_bytes(pickle.dumps(Payload(marker)))
    reseal(step)


def unlisted_index(step: Path, marker: Path) -> None:
    files = json.loads((step / "manifest.json").read_text())["files"]
    (step / ".metadata").write_bytes(pickle.dumps(Payload(marker)))
    reseal(step, {name: digest for name, digest in files.items() if name != ".metadata"})


def bytes_item(step: Path, marker: Path) -> None:
    """The index holds nothing but torch's own classes; it says that a tensor is a pickle."""
    index = pickle.loads((step / ".metadata").read_bytes())
    name = next(name for name in index.state_dict_metadata if name.startswith("model."))
    payload, file = io.BytesIO(), step / "__0_0.distcp"
    torch.save(Payload(marker), payload)
    place = _StorageInfo(file.name, file.stat().st_size, len(payload.getvalue()))
    file.write_bytes(file.read_bytes() + payload.getvalue())
    index.state_dict_metadata[name] = BytesStorageMetadata()
    for each in [each for each in index.storage_data if each.fqn == name]:
        del index.storage_data[each]
    index.storage_data[MetadataIndex(name)] = place
    (step / ".metadata").write_bytes(pickle.dumps(index))
    reseal(step)


def instead_of_a_tensor(step: Path, marker: Path) -> None:
    """The index is as it was; where it says that a tensor lies, there is a pickle."""
    index = pickle.loads((step / ".metadata").read_bytes())
    payload, file = io.BytesIO(), step / "__0_0.distcp"
    torch.save(Payload(marker), payload)
    place = _StorageInfo(file.name, file.stat().st_size, len(payload.getvalue()))
    file.write_bytes(file.read_bytes() + payload.getvalue())
    index.storage_data = dict.fromkeys(index.storage_data, place)
    (step / ".metadata").write_bytes(pickle.dumps(index))
    reseal(step)


@pytest.mark.parametrize(
    ("attack", "message"),
    [
        (changed_index, "is not the index of a checkpoint (it asks for posix.system)"),
        (unlisted_index, "none of the 2 checkpoints in"),
        (bytes_item, "(it asks for torch.distributed.checkpoint.metadata.BytesStorageMetadata)"),
        (instead_of_a_tensor, "does not hold the tensors of this run"),
    ],
)
def test_no_code_in_a_checkpoint_runs(attack, message: str, sent: Sent, tmp_path: Path, capsys):
    marker = tmp_path / "code-has-run"
    for step in steps(sent):
        attack(step, marker)
    try:
        code = sent.train()
    finally:
        assert not marker.exists(), "the checkpoint's code has run"
    assert code == 2
    assert message in capsys.readouterr().err.replace("\n", " ")


def test_a_file_that_the_manifest_does_not_list_is_noticed(sent: Sent, capsys):
    (steps(sent)[-1] / "more").write_text("of the sender's choice")
    assert sent.train() == 0
    out = capsys.readouterr().out.replace("\n", " ")
    assert "skipping a damaged checkpoint" in out and "more is not in the manifest" in out
    assert "resuming after step 3" in out


def change_index(step: Path, change: Callable[[Any], None]) -> None:
    index = pickle.loads((step / ".metadata").read_bytes())
    change(index)
    (step / ".metadata").write_bytes(pickle.dumps(index))
    reseal(step)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (_StorageInfo("../../../../home/profile", 0, 3), "is not in the manifest"),
        (_StorageInfo("__0_0.distcp", -1, 3), "has no bytes -1 to 2"),
        (_StorageInfo("__0_0.distcp", 0, 10**9), "has no bytes 0 to 1000000000"),
        (_StorageInfo("__0_0.distcp", 0, 3, ["zstd"]), "is not in the manifest"),
    ],
)
def test_an_index_leads_nowhere_but_into_the_files_of_its_checkpoint(
    place: _StorageInfo, message: str, sent: Sent, capsys
):
    def point(index: Any) -> None:
        index.storage_data = dict.fromkeys(index.storage_data, place)

    for step in steps(sent):
        change_index(step, point)
    assert sent.train() == 2
    assert message in capsys.readouterr().err.replace("\n", " ")


def test_an_index_changes_no_class_of_ours(sent: Sent, capsys):
    """A pickle may set attributes of the classes that it names: PosixPath.is_symlink, say."""
    for step in steps(sent):
        honest = (step / ".metadata").read_bytes()
        poison = b"".join((
            pickle.PROTO + b"\x02",
            pickle.GLOBAL + b"pathlib\nPosixPath\n",
            pickle.NONE + pickle.EMPTY_DICT,
            pickle.BINUNICODE + (10).to_bytes(4, "little") + b"is_symlink",
            pickle.GLOBAL + b"torch\nSize\n",
            pickle.SETITEM + pickle.TUPLE2 + pickle.BUILD + pickle.POP,
        ))  # fmt: skip
        (step / ".metadata").write_bytes(poison + honest[2:])
        reseal(step)
    before = PosixPath.is_symlink
    try:
        code = sent.train()
        assert PosixPath.is_symlink is before, "the pickle has changed a class"
    finally:
        PosixPath.is_symlink = before
    assert code == 2
    assert "is not the index of a checkpoint" in capsys.readouterr().err


def test_a_run_folder_of_the_version_before_resumes(tmp_path: Path, capsys):
    """Written by the last version that unpickled the index; torch's own reader, which is safe with
    a folder that we wrote, must find the same numbers."""
    folder = tmp_path / "run"
    shutil.copytree(BEFORE / "run", folder)
    recipe, prepared = BEFORE / "recipe.toml", tmp_path / "prepared"
    shutil.copytree(BEFORE / "tokens", prepared)
    step = folder / "checkpoints/step-00000003"
    files = json.loads((step / "manifest.json").read_text())["files"]
    ours = read_index(step, files)
    theirs = FileSystemReader(step).read_metadata()
    assert ours.storage_data == theirs.storage_data
    assert {name: (each.size, each.chunks) for name, each in ours.state_dict_metadata.items()} == {
        name: (each.size, each.chunks) for name, each in theirs.state_dict_metadata.items()
    }
    where = ["--prepared", str(prepared), "--folder", str(folder), "--train.steps", "5"]
    assert main(["train", str(recipe), *where]) == 0
    out = capsys.readouterr().out
    assert (
        "resuming after step 3" in out and "ended after step 5: the last step of the recipe" in out
    )
    assert "missing or changed" not in out, "it kept no hash of its metrics"
    losses = [line["loss"] for line in read_metrics(folder / "metrics.jsonl")]
    # The losses of five steps without a stop; another CPU may round otherwise.
    assert losses[3:] == pytest.approx([5.6253384, 5.6008038], rel=1e-5)


def test_an_index_written_by_python_3_11_2_is_read(sent: Sent, monkeypatch):
    """Its enums pickle a member as getattr(the enum, the member's name)."""
    step = steps(sent)[-1]
    files = json.loads((step / "manifest.json").read_text())["files"]
    before = read_index(step, files)
    index = pickle.loads((step / ".metadata").read_bytes())
    monkeypatch.setattr(
        _MEM_FORMAT_ENCODING, "__reduce_ex__", lambda self, _: (getattr, (type(self), self._name_))
    )
    content = pickle.dumps(index)
    assert b"getattr" in content
    (step / ".metadata").write_bytes(content)
    assert read_index(step, files).state_dict_metadata == before.state_dict_metadata
