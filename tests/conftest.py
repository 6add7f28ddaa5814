"""Shapes in signatures are checked while tests run, and only then."""

import os
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
    shape_checks.update("jaxtyping_disable", not checked)


@pytest.fixture(autouse=True)
def same_numbers_every_time() -> None:
    """A test that draws from torch's generator draws the same numbers in any order of tests."""
    torch.manual_seed(0)
