"""Modules that only Unix has may be missing: `fcntl` and `resource`."""

import subprocess
import sys

import pytest

IMPORT_EVERYTHING = """
import pkgutil, sys
import torch, filelock  # what other software does without these modules is not ours to test
for name in ("fcntl", "resource"):
    sys.modules[name] = None  # as if it were not there
    for module in [module for module in sys.modules if module.startswith("clearhead")]:
        del sys.modules[module]
import clearhead
for module in pkgutil.walk_packages(clearhead.__path__, "clearhead."):
    if module.name != "clearhead.__main__":
        __import__(module.name)
assert "clearhead.data.prepare" in sys.modules
from clearhead.training.plan import peak_memory
assert peak_memory() == 0
"""


@pytest.mark.slow
def test_every_module_imports_without_what_only_unix_has():
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_EVERYTHING], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
