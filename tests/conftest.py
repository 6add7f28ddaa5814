"""Shapes in signatures are checked while tests run, and only then."""

import os
import zlib
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings
from jaxtyping import config as shape_checks
from jaxtyping import install_import_hook

install_import_hook(
    ["clearhead.parts", "clearhead.stacks", "clearhead.models"], "beartype.beartype"
)
# Checking shapes takes several times as long as computing with them. At each push it is done for
# the parts and the models alone, in `.ci/nightly` everywhere.
SHAPES_CHECKED = ("tests/parts", "tests/models/test_models.py")
# The first gives wrong types on purpose, and looks at our own messages. The other runs the blocks
# of pages, which readers run without the checks; some of them take times.
NEVER_CHECKED = ("tests/api/test_wrong.py", "tests/test_documents.py")

# Two test processes share two cores, and one thread gives the same sums every time.
torch.set_num_threads(1)

settings.register_profile(
    "clearhead",
    deadline=None,  # the machine may be busy
    derandomize=True,  # a red run is red again
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("clearhead")

# Files and folders whose tests share something that takes long to make: one process runs each.
TOGETHER = (
    "tests/training/test_ranks.py",
    "tests/training/test_kill.py",
    "tests/training/test_parallel.py",
    "tests/serving",
    "tests/scale/test_plan.py",
    "tests/scale/test_rank_memory.py",
    "tests/decoding/test_parity_with_hugging_face.py",
)


# A test of so many cases or more is a table, of which each push runs a part.
TABLE = 4
# But of these every case: pages and files, and what a run that resumes depends on.
WHOLE = (
    "tests/test_",
    "tests/parts",
    "tests/training/test_resume.py",
    "tests/training/test_kill.py",
)


def cases_of_a_push(names: list[str]) -> set[str]:
    """What `.ci/run` runs (CLEARHEAD_DRAWS=few): every test, but of a table its first two cases and
    a fifth of the others, always the same ones. By hand and in `.ci/nightly` every case runs."""
    tables, seen, chosen = Counter(name.split("[")[0] for name in names), Counter[str](), set[str]()
    for name in names:
        test = name.split("[")[0]
        seen[test] += 1
        runs = tables[test] < TABLE or seen[test] <= 2 or zlib.crc32(name.encode()) % 5 == 0
        if runs or name.startswith(WHOLE):
            chosen.add(name)
    return chosen


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("CLEARHEAD_DRAWS") != "few":
        return
    chosen = cases_of_a_push([item.nodeid for item in items])
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
    items[:] = [item for item in items if item.nodeid in chosen]


@pytest.hookimpl(
    optionalhook=True
)  # of pytest-xdist; its own mark for groups fails with pytest 9.2
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class FilesTogether(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((each for each in TOGETHER if nodeid.startswith(each)), nodeid)

    return FilesTogether(config, log)


@pytest.hookimpl(tryfirst=True)  # before fixtures are made
def pytest_runtest_setup(item: pytest.Item) -> None:
    checked = item.nodeid.startswith(SHAPES_CHECKED) or os.environ.get("CLEARHEAD_DRAWS") == "full"
    wrong = item.nodeid.startswith(NEVER_CHECKED)
    shape_checks.update("jaxtyping_disable", wrong or not checked)


@pytest.fixture(autouse=True)
def same_numbers_every_time() -> None:
    """A test that draws from torch's generator draws the same numbers in any order of tests."""
    torch.manual_seed(0)
