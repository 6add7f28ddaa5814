"""Starts processes in such a way that no code in the current folder is run.

`python -m` and `python -c` look for modules in the current folder first, before the standard
library, and multiprocessing starts its processes with `python -c`. A file json.py in a folder that
somebody sent would therefore be run. Python's safe path (`-P`, or PYTHONSAFEPATH) leaves that
folder out. `tests/security/test_processes.py` finds every process that is started in another
way."""

import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from clearhead.environment import environment_with, variables

ChildStream = int | IO[bytes] | None
"""A stream that `subprocess.Popen` takes."""
_lock = threading.Lock()
_changes = ExitStack()
_n_open = 0  # number of open `starting_processes` blocks, which may overlap in several threads


def start_module(
    module: str,
    *arguments: str,
    folder: Path | None = None,
    stdin: ChildStream = None,
    stdout: ChildStream = None,
    stderr: ChildStream = None,
    own_session: bool = False,
    **changes: str,
) -> subprocess.Popen[bytes]:
    """Runs `python -m MODULE` in a folder. `changes` are environment variables."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, *arguments],
        cwd=folder,
        env=environment_with(**changes),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=own_session,
    )


@contextmanager
def starting_processes() -> Iterator[None]:
    """Inside the block, every process that multiprocessing starts (a worker, a fork server, the
    process that tracks semaphores) uses the safe path and does not run the main script again."""
    global _n_open
    with _lock:
        if _n_open == 0:
            _changes.enter_context(variables(PYTHONSAFEPATH="1"))
            _changes.enter_context(_main_is_left_alone())
        _n_open += 1
    try:
        yield
    finally:
        with _lock:
            _n_open -= 1
            if _n_open == 0:
                _changes.close()


@contextmanager
def _main_is_left_alone() -> Iterator[None]:
    """Keep spawned processes from running the main script again. They would do so to find what the
    script defines; workers need none of that, and a script without `if __name__ == "__main__":`
    would start itself again and again."""
    main = sys.modules["__main__"]
    names = ("__file__", "__spec__")
    hidden = {name: getattr(main, name) for name in names if hasattr(main, name)}
    for name in hidden:
        setattr(main, name, None)
    try:
        yield
    finally:
        for name, value in hidden.items():
            setattr(main, name, value)


def output_of(program: str, *arguments: str) -> str:
    """Return what another program prints, or "" if it fails or is not installed."""
    path = shutil.which(program)
    # Windows looks in the current folder before it looks at the PATH.
    if path is None or Path(path).resolve().parent == Path.cwd():
        return ""
    done = subprocess.run([path, *arguments], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""
