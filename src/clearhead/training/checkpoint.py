"""A checkpoint is a folder that is either complete or absent.

It is written under a hidden name beside its final place, synced to the disk, described by a
manifest with the sha256 of every file, and renamed. The tensors are torch's distributed checkpoint:
any number of ranks writes them, and any other number reads them. The hashes show damage, but not
who wrote the checkpoint. Since it may come from somebody else, `checkpoint_index` reads it without
running code."""

import hashlib
import io
import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystem

from clearhead.data.manifest import to_json
from clearhead.environment import crash_point
from clearhead.errors import FolderError, setting
from clearhead.files import sha256_of, sync
from clearhead.interop.folders import read_text, regular_file
from clearhead.training.checkpoint_index import (
    INDEX,
    CheckpointError,
    TensorPlanner,
    TensorReader,
    read_index,
)
from clearhead.training.distributed import Ranks
from clearhead.training.shared_folder import check_seen

MANIFEST, SEAL = "manifest.json", "manifest.sha256"
FORMAT = 1
BUFFER = 2**20  # torch writes in small pieces
FACTS = {"state", "loader", "recipe", "versions", "world", "files"}
Tensors = dict[str, Any]


class Checkpoint(NamedTuple):
    """A checkpoint whose files were verified, and the facts in its manifest."""

    folder: Path
    facts: dict[str, Any]


class _Pending(NamedTuple):
    """A checkpoint that is being written to the disk."""

    step: int
    unfinished: Path
    facts: dict[str, Any]
    files: Future[dict[str, str]]


class Checkpoints:
    """The checkpoints of a run: `step-00000120`, … All ranks must call every method that writes."""

    def __init__(self, folder: Path | None, ranks: Ranks, *, keep: int = 2) -> None:
        """If `folder` is None, there are no checkpoints, and none can be written."""
        self._folder, self.ranks, self.keep = folder, ranks, keep
        # The warning that only one process writes is expected.
        warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable")
        self.pending: _Pending | None = None
        self.before_naming: Callable[[], None] = lambda: None
        """Syncs the lines of the run's steps to the disk: they must be there before a checkpoint
        gets its name."""
        self.saved_step = 0
        """The step of the newest checkpoint that this run has completed, or from which it has
        resumed."""
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._group: dist.ProcessGroup | None = None
        if ranks.world > 1:  # a process group of its own, apart from that of the gradients
            group = dist.new_group(backend="gloo", timeout=ranks.timeout)
            assert isinstance(group, dist.ProcessGroup)
            self._group = group

    @property
    def folder(self) -> Path:
        """The folder of the checkpoints; a trial run has none."""
        assert self._folder is not None, "a trial has no checkpoints"
        return self._folder

    def save(self, step: int, tensors: Tensors, facts: dict[str, Any]) -> None:
        """Write a checkpoint, and remove the oldest one when it is complete."""
        self.start(step, tensors, facts, copy=False)
        self.finish()

    def start(
        self, step: int, tensors: Tensors, facts: dict[str, Any], *, copy: bool = True
    ) -> None:
        """Copy the tensors, and start to write a checkpoint while training continues. `finish`
        completes it."""
        self.finish()
        unfinished = self.folder / f".step-{step:08}.unfinished"
        with _named_errors(self.folder, self.ranks):
            if self.ranks.first:
                shutil.rmtree(unfinished, ignore_errors=True)
                unfinished.mkdir(parents=True)
        writer = dcp.FileSystemWriter(unfinished, sync_files=False)  # `_hash` syncs
        writer.fs = _Files()
        with _named_errors(unfinished, self.ranks):
            if copy:
                saved = dcp.async_save(
                    tensors,
                    storage_writer=writer,
                    process_group=self._group,
                    no_dist=self.ranks.world == 1,
                )
                assert isinstance(saved, Future)
                files = self._writer.submit(self._hash, unfinished, after=saved)
            else:
                dcp.save(tensors, storage_writer=writer, no_dist=self.ranks.world == 1)
                files = Future[dict[str, str]]()
                files.set_result(self._hash(unfinished))
        self.pending = _Pending(step, unfinished, facts, files)

    @property
    def written(self) -> bool:
        """Tell whether `finish` would return at once."""
        return self.pending is None or self.pending.files.done()

    def finish(self) -> None:
        """Wait until the checkpoint that `start` began is written, and give it its name."""
        if self.pending is None:
            return
        pending, self.pending = self.pending, None
        with _named_errors(pending.unfinished, self.ranks):
            mine = pending.files.result()
        hashes = {
            name: digest for files in self.ranks.gather(mine) for name, digest in files.items()
        }
        check_seen(pending.unfinished, hashes, self.ranks)
        with _named_errors(pending.unfinished, self.ranks):
            if self.ranks.first:
                manifest = to_json({"format": FORMAT, **pending.facts, "files": hashes})
                _write(pending.unfinished / MANIFEST, manifest)
                _write(pending.unfinished / SEAL, _seal(manifest.encode()))
                _sync(pending.unfinished)
                self.before_naming()
                finished = self.folder / f"step-{pending.step:08}"
                # only a damaged checkpoint can be there
                shutil.rmtree(finished, ignore_errors=True)
                _rename(pending.unfinished, finished)
                _sync(self.folder)
        self.saved_step = pending.step
        with _named_errors(self.folder, self.ranks):
            self._prune(pending.step, pending.facts["state"]["best_step"])

    def _hash(self, unfinished: Path, after: Future[Any] | None = None) -> dict[str, str]:
        """Sync and hash the files that this rank wrote, `after` they are written. The first rank
        also takes the index."""
        if after is not None:
            after.result()
        own = sorted(unfinished.glob(f"__{self.ranks.rank}_*"))
        own += [unfinished / INDEX] if self.ranks.first else []
        for path in own:
            _sync(path)
        return {path.name: sha256_of(path) for path in own}

    def _prune(self, newest: int, best_step: int | None) -> None:
        """Remove old checkpoints. This is called when a new checkpoint is complete. A checkpoint
        that is removed loses its name first."""
        steps = self.steps()
        if not self.ranks.first:
            return
        for leftover in self.folder.glob(".step-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        # Later checkpoints were damaged, or this run would have resumed from them.
        kept = {
            self.best(best_step, steps),
            *[step for step in steps if step <= newest][-self.keep :],
        }
        for step in steps:
            if step not in kept:
                gone = self.folder / f".step-{step:08}.removed"
                _rename(self.folder / f"step-{step:08}", gone)
                shutil.rmtree(gone, ignore_errors=True)

    def best(self, best_step: int | None, steps: list[int]) -> int | None:
        """Return the best of the steps that have a checkpoint. If the checkpoint of `best_step`
        could not be written, this is the newest earlier one that was the best of its time."""
        if best_step is None or best_step in steps:
            return best_step
        for step in reversed([step for step in steps if step < best_step]):
            state = _read_manifest(self.folder / f"step-{step:08}")[0].get("state")
            if isinstance(state, dict) and state.get("best_step") == step:
                return step
        return None

    def steps(self) -> list[int]:
        """Return the steps of the checkpoints in the folder as the first rank sees them, the oldest
        first. The checkpoints are not verified."""
        if self._folder is None:
            return []
        folders = [path.name[5:] for path in self._folder.glob("step-*") if path.is_dir()]
        saved = sorted(int(number) for number in folders if number.isdigit())
        return self.ranks.gather(saved)[0]

    def newest(self, report: Callable[[str], None]) -> Checkpoint | None:
        """Return the newest complete checkpoint; None if there is no checkpoint at all. `report` is
        called for each damaged one."""
        steps = self.steps()
        for step in reversed(steps):
            checkpoint, damage = self.verified(step)
            if checkpoint is not None:
                return checkpoint
            report(f"skipping a damaged checkpoint: {damage}")
        if steps:
            raise CheckpointError(
                f"none of the {len(steps)} checkpoints in {self.folder} is complete; restore "
                f"one, or start a new run in another folder: {setting('folder', ...)}"
            )
        return None

    def verified(self, step: int) -> tuple[Checkpoint | None, str]:
        """Return the checkpoint of a step, or what is wrong with it. Each rank verifies a share of
        the files, and all ranks return the same."""
        folder = self.folder / f"step-{step:08}"
        facts, damage = _read_manifest(folder)
        names = sorted(facts.get("files", {}))[self.ranks.rank :: self.ranks.world]
        for name in () if damage else names:
            try:
                if sha256_of(regular_file(folder, name)) != facts["files"][name]:
                    damage = f"{folder / name} does not have the bytes that were written"
            except FolderError as error:
                damage = str(error)
            except OSError as error:
                damage = f"{folder / name} cannot be read ({error.strerror})"
        damages = [*filter(None, self.ranks.gather(damage))]
        return (None, damages[0]) if damages else (Checkpoint(folder, facts), "")

    def load(self, checkpoint: Checkpoint, tensors: Tensors) -> None:
        """Fill these tensors, whole or sharded in any way, from the checkpoint."""
        index, problem = None, ""
        try:
            index = read_index(checkpoint.folder, checkpoint.facts["files"])
        except CheckpointError as error:
            problem = error.message
        if problems := [*filter(None, self.ranks.gather(problem))]:
            raise CheckpointError(problems[0])
        assert index is not None
        reader, alone = TensorReader(checkpoint.folder, index), self.ranks.world == 1
        try:
            dcp.load(tensors, storage_reader=reader, planner=TensorPlanner(), no_dist=alone)
        except CheckpointException as error:
            cause = next(iter(error.failures.values()))[0]
            raise CheckpointError(
                f"{checkpoint.folder} does not hold the tensors of this run "
                f"({_describe(cause)}); start a new run in another folder: {setting('folder', ...)}"
            ) from error


class _Files(FileSystem):
    """torch's file system, but with the path in its errors, and with a crash point at each
    write."""

    @contextmanager
    def create_stream(self, path: str | os.PathLike, mode: str) -> Iterator[io.IOBase]:
        if mode != "wb":
            with super().create_stream(path, mode) as stream:
                yield stream
            return
        with _path_in_errors(path), _Stream(_File(path, "wb"), BUFFER) as stream:
            yield stream

    def rename(self, path: str | os.PathLike, new_path: str | os.PathLike) -> None:
        crash_point()
        super().rename(path, new_path)


class _Stream(io.BufferedWriter):
    """Torch flushes after every tensor; it is enough to sync when the file is closed."""

    closing = False

    def flush(self) -> None:
        if self.closing:
            super().flush()

    def close(self) -> None:
        self.closing = True
        super().close()


class _File(io.FileIO):
    def write(self, data: Any) -> int | None:
        crash_point()
        return super().write(data)


@contextmanager
def _path_in_errors(path: str | os.PathLike) -> Iterator[None]:
    """Add the file to the error of a write, in which the system names no file."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _write(path: Path, text: str) -> None:
    with _path_in_errors(path), io.BufferedWriter(_File(path, "wb")) as file:
        file.write(text.encode())
    _sync(path)


def _sync(path: Path) -> None:
    """Sync a file's bytes, or the names in a folder, to the disk."""
    crash_point()
    with _path_in_errors(path):
        sync(path)


def _rename(old: Path, new: Path) -> None:
    crash_point()
    old.rename(new)


def _seal(manifest: bytes) -> str:
    return hashlib.sha256(manifest).hexdigest() + "\n"


def _read_manifest(folder: Path) -> tuple[dict[str, Any], str]:
    """Return the facts of a manifest, or why it cannot be used. The manifest lists every file of
    the folder."""
    try:
        manifest, seal = read_text(folder, MANIFEST), read_text(folder, SEAL)
    except FolderError as error:
        return {}, str(error)
    except OSError as error:
        return {}, f"{error.filename} cannot be read ({error.strerror})"
    if seal != _seal(manifest.encode()):
        return {}, f"{folder / MANIFEST} does not have the bytes that were written"
    try:
        facts = json.loads(manifest)
    except (ValueError, RecursionError) as error:
        return {}, f"{folder / MANIFEST} is not valid JSON ({error})"
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        written_format = facts.get("format") if isinstance(facts, dict) else None
        return {}, f"{folder} is of format {written_format}, and this clearhead reads {FORMAT}"
    if missing := FACTS - facts.keys():
        return {}, f"{folder / MANIFEST} lacks {', '.join(sorted(missing))}"
    if not isinstance(facts["files"], dict) or INDEX not in facts["files"]:
        return {}, f"{folder / MANIFEST} does not list {INDEX}"
    if surplus := set(os.listdir(folder)) - {MANIFEST, SEAL, *facts["files"]}:
        return {}, f"{folder / min(surplus)} is not in the manifest"
    return facts, ""


@contextmanager
def _named_errors(folder: Path, ranks: Ranks) -> Iterator[None]:
    """Turn any rank's failure to write into one error on all ranks, with errno and path, and remove
    files that are half written."""
    message = ""
    try:
        yield
    except OSError as error:
        message = _describe(error)
    except CheckpointException as error:
        # torch's own type, which is no Exception, holds the errors of all ranks
        message = "; ".join(_describe(failure[0]) for failure in error.failures.values())
    messages = [*filter(None, ranks.gather(message))]
    if messages:
        if ranks.first and folder.name.startswith("."):
            shutil.rmtree(folder, ignore_errors=True)
        raise CheckpointError(
            f"the checkpoint could not be written: {messages[0]}; "
            "earlier checkpoints are unaffected"
        )


def _describe(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        return f"{error.filename}: {error.strerror} (errno {error.errno})"
    return f"{type(error).__name__}: {error}"
