"""A run folder that the machines do not share is noticed before the first step."""

from pathlib import Path

import pytest

from clearhead.training.checkpoint_index import CheckpointError
from clearhead.training.distributed import Ranks
from clearhead.training.shared_folder import check_shared
from tests.training.parallel_ranks import on_ranks


def said(ranks: Ranks, disks: list[tuple[Path, Path]]) -> list[list[str]]:
    """What both ranks say of each pair of disks, of which each rank sees one."""
    return [ranks.gather(of_one(pair[ranks.rank], ranks)) for pair in disks]


def of_one(folder: Path, ranks: Ranks) -> str:
    try:
        check_shared(folder, ranks)
    except CheckpointError as error:
        return f"{type(error).__name__}: {error}"
    return "shared"


@pytest.mark.slow
def test_every_rank_says_what_is_wrong_with_the_folder_and_leaves_nothing(tmp_path: Path):
    first, second, file = (tmp_path / name for name in ("first", "second", "file"))
    file.touch()
    shared, unshared, unwritable = on_ranks(
        2, said, [(first, first), (first, second), (first, file)]
    )
    assert shared == ["shared", "shared"]
    assert unshared[0].startswith(f"NotSharedError: rank 0 does not see {first}/.shared-")
    for each in unshared:
        assert "/__1_, which rank 1 has written; the run's folder must be on a disk that" in each
    assert unwritable[0] == unwritable[1]
    assert f"rank 1 cannot write {file}" in unwritable[0] and "folder=…" in unwritable[0]
    assert list(tmp_path.glob("*/*")) == []
