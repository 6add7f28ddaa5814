"""Shapes in signatures are checked while the tests run, and only then."""

import pytest
import torch
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

install_import_hook(
    ["clearhead.parts", "clearhead.stacks", "clearhead.models"], "beartype.beartype"
)

# Two test processes share two cores, and one thread gives the same sums every time.
torch.set_num_threads(1)

settings.register_profile(
    "clearhead",
    deadline=None,  # the machine may be busy
    derandomize=True,  # a red run is red again
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("clearhead")


@pytest.fixture(autouse=True)
def same_numbers_every_time() -> None:
    """A test that draws from torch's generator draws the same numbers in any order of tests."""
    torch.manual_seed(0)
