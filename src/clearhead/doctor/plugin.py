"""A fixture for pytest, in every test suite where this package is installed:

def test_my_model_is_healthy(healthy):
    healthy(build_model(), kind="decoder", vocab_size=100)
"""

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def healthy() -> Callable[..., Any]:
    """Return `assert_healthy`, which fails with the report if the doctor finds an error or a
    warning."""
    # torch is imported when a test asks for it, not whenever pytest starts.
    from .testing import assert_healthy

    return assert_healthy
