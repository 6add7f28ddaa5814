"""Other systems: modules that only Unix has may be missing, and Windows has rules of its own."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from clearhead.cli import main
from clearhead.files import sync

IMPORT_EVERYTHING = """
import pkgutil, sys
import torch, filelock  # what other software does without these modules is not ours to test
for name in ("fcntl", "resource"):
    sys.modules[name] = None  # as if it were not there
    for module in [module for module in sys.modules if module.startswith("clearhead")]:
        del sys.modules[module]
import clearhead
for module in pkgutil.walk_packages(clearhead.__path__, "clearhead."):
    if not module.name.endswith(".__main__"):
        __import__(module.name)
assert "clearhead.data.prepare" in sys.modules
from clearhead.training.plan import peak_memory
assert peak_memory(torch.device("cpu")) == 0
"""


@pytest.mark.slow
def test_every_module_imports_without_what_only_unix_has():
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_EVERYTHING], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


def test_a_file_is_synced_by_a_handle_that_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Windows refuses to sync any other."""
    file = tmp_path / "file"
    file.write_bytes(b"x")
    flags: list[int] = []
    opened = os.open

    def noting(path: Path, flag: int) -> int:
        flags.append(flag)
        return opened(path, flag)

    monkeypatch.setattr(os, "open", noting)
    sync(file)
    sync(tmp_path)
    assert flags == [os.O_RDWR, os.O_RDONLY]


def test_a_pipe_without_chinese_characters_gets_escapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    pipe = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
    monkeypatch.setattr("sys.stdout", pipe)
    assert main(["learn", "--language", "zh"]) == 0
    pipe.flush()
    assert b"\\u5df2\\u521b\\u5efa  clearhead-learn" in pipe.buffer.getvalue()  # pyright: ignore
