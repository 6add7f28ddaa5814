"""Checks that ranks on several machines write into one run folder, which must be on a disk that all
machines share."""

import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path

from clearhead.errors import setting
from clearhead.training.checkpoint_index import CheckpointError
from clearhead.training.distributed import Ranks


class NotSharedError(CheckpointError):
    """Raised if the ranks write to different disks: no checkpoint of this run could be complete."""


def check_shared(folder: Path, ranks: Ranks) -> None:
    """Check before hours of work that all ranks share a disk: every rank writes a file, and rank 0
    looks for all of them."""
    if ranks.world == 1:
        return
    # The name is new at every start, since network disks remember for a while which names did not
    # exist.
    tried = folder / ranks.gather(f".shared-{uuid.uuid4().hex}")[0]
    problem = ""
    try:
        tried.mkdir(parents=True, exist_ok=True)
        (tried / f"__{ranks.rank}_").touch()
    except OSError as error:
        problem = f"rank {ranks.rank} cannot write {error.filename}: {error.strerror}"
    if problems := [*filter(None, ranks.gather(problem))]:
        shutil.rmtree(tried, ignore_errors=True)
        raise CheckpointError(
            f"{problems[0]}; allow it to, or name another folder: {setting('folder', ...)}"
        )
    check_seen(tried, [f"__{rank}_" for rank in range(ranks.world)], ranks)
    shutil.rmtree(tried, ignore_errors=True)


def check_seen(folder: Path, names: Iterable[str], ranks: Ranks) -> None:
    """Raise on every rank if rank 0 does not see one of the files `__RANK_…` that the ranks have
    written. Then remove the folder."""
    unseen = [name for name in sorted(names) if not (folder / name).exists()]
    if unseen := ranks.gather(unseen)[0]:
        shutil.rmtree(folder, ignore_errors=True)
        raise NotSharedError(
            f"rank 0 does not see {folder / unseen[0]}, which rank {unseen[0].split('_')[2]} has "
            "written; the run's folder must be on a disk that all machines share: "
            f"{setting('folder', ...)}"
        )
