"""Reads everything that clearhead takes from its process. No other file reads `os.environ`."""

import ctypes
import itertools
import os
import platform
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from clearhead.errors import ClearheadError, ConfigError


def data_folder() -> Path:
    """Return the folder that holds the large corpora (CLEARHEAD_DATA)."""
    value = os.environ.get("CLEARHEAD_DATA")
    if not value:
        raise ClearheadError(
            "CLEARHEAD_DATA is not set; it names the folder that holds the corpora, "
            "for example: export CLEARHEAD_DATA=~/corpora"
        )
    return Path(value).expanduser()


def cache_folder() -> Path:
    """Return the folder for files that can be made again: CLEARHEAD_CACHE, or `clearhead` in the
    user's cache directory."""
    if value := os.environ.get("CLEARHEAD_CACHE"):
        return Path(value).expanduser()
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "clearhead"


def api_keys() -> list[str]:
    """Return the keys of a server's clients from CLEARHEAD_API_KEYS, which separates them by
    commas. There are none if the variable is not set."""
    variable = os.environ.get("CLEARHEAD_API_KEYS")
    if variable is None:
        return []
    keys = [key.strip() for key in variable.split(",") if key.strip()]
    if not keys:
        raise ConfigError(
            "CLEARHEAD_API_KEYS", variable, "holds no key",
            "write keys separated by commas, or unset it to let everybody ask",
        )  # fmt: skip
    return keys


def trusts_tokenizers() -> bool:
    """Tell whether the user wants to open tokenizers that may be harmful
    (CLEARHEAD_TRUST_TOKENIZERS=1)."""
    return os.environ.get("CLEARHEAD_TRUST_TOKENIZERS") == "1"


def metrics_folder() -> Path | None:
    """Return the folder in which the workers of a server keep their metrics, or None if there is
    one worker. prometheus-client reads the same variable."""
    value = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    return Path(value) if value else None


def share_metrics(folder: Path) -> None:
    """Let this process and its child processes share their metrics. Call this before
    prometheus-client is imported."""
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)


@contextmanager
def variables(**changes: str) -> Iterator[None]:
    """Set environment variables inside the block, and restore them afterwards."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def environment_with(**changes: str) -> dict[str, str]:
    """Copy this process's environment variables for a child process, and apply `changes` to the
    copy."""
    return {**os.environ, **changes}


def keep_freed_memory() -> bool:
    """Tell glibc to keep large freed buffers instead of returning them to the kernel.

    A training step on the CPU allocates and frees the same large buffers again and again; by
    default glibc maps and unmaps them each time, and the page faults cost a small model 5 to 40% of
    a step, depending on the machine. Returns whether the allocator accepted the setting: False if
    the C library is not glibc.
    """
    m_trim_threshold, m_mmap_threshold = -1, -3  # from glibc's malloc.h
    largest = 2**31 - 1  # mallopt takes an int
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(m_mmap_threshold, largest) and mallopt(m_trim_threshold, largest))


def processor_name() -> str:
    """Return the name that the operating system gives the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(": ")[1] for line in lines if line.startswith("model name")), "unknown")


def one_tokenizer_thread() -> None:
    """Limit the `tokenizers` library to one thread, which leaves the other cores to other
    processes."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


class Torchrun(NamedTuple):
    """The values that torchrun sets for each process that it starts."""

    rank: int
    world: int
    local_rank: int
    attempt: int
    """How often torchrun has restarted the processes."""


def torchrun() -> Torchrun | None:
    """Return the settings of torchrun, or None if torchrun did not start this process."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    if not all(name in os.environ for name in names):
        return None
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return Torchrun(*(int(os.environ[name]) for name in names), attempt=int(attempt))


_points_passed = itertools.count(1)


def crash_point() -> None:
    """Simulate a power cut. This function is called before every write, sync and rename of a
    checkpoint; with CLEARHEAD_CRASH_AT=n, the n-th call kills this process, so that tests can try
    each of them."""
    crash_at = os.environ.get("CLEARHEAD_CRASH_AT")
    if crash_at is not None and next(_points_passed) == int(crash_at):
        os.kill(os.getpid(), signal.SIGKILL)
