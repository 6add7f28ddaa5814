"""Runs jobs side by side. Each is a separate process with one thread, so that runs neither share
anything nor disturb each other's speed."""

import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from clearhead.errors import ClearheadError
from clearhead.files import open_plain
from clearhead.processes import start_module

POLL = 0.05  # seconds
LAST_WORDS = 10_000  # bytes of a log that are read for its last line


class StudyJob(NamedTuple):
    """One run for a worker: the text for its standard input, and the place of its log."""

    name: str
    task: dict[str, Any]
    log: Path


def run_jobs(
    jobs: Sequence[StudyJob],
    module: str,
    workers: int,
    finished: Callable[[StudyJob], None],
) -> None:
    """Run `python -m MODULE` for each job, this many side by side, and call `finished` after each.

    A worker's standard input stays open as long as this process exists; when it closes, the worker
    ends at once. If a study is killed, no process is left that would hold its runs."""
    waiting, running = deque(jobs), list[tuple[StudyJob, subprocess.Popen[bytes]]]()
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                job = waiting.popleft()
                running.append((job, _start(job, module)))
            time.sleep(POLL)
            for job, process in list(running):
                if process.poll() is None:
                    continue
                running.remove((job, process))
                assert process.stdin is not None
                process.stdin.close()
                if process.returncode != 0:
                    raise ClearheadError(_failure(job, process.returncode))
                finished(job)
    finally:
        for _, process in running:
            process.kill()
        for _, process in running:
            process.wait()


def _start(job: StudyJob, module: str) -> subprocess.Popen[bytes]:
    job.log.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(open_plain(job.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as log:
        process = start_module(
            module,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            own_session=True,  # Ctrl-C reaches this process, which then ends its workers
            OMP_NUM_THREADS="1",
            MKL_NUM_THREADS="1",
        )
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(job.task).encode() + b"\n")
        process.stdin.flush()
    except BrokenPipeError:  # it has ended already; its code says why
        pass
    return process


def _failure(job: StudyJob, code: int) -> str:
    with job.log.open("rb") as log:
        log.seek(max(0, job.log.stat().st_size - LAST_WORDS))
        lines = log.read(LAST_WORDS).decode(errors="replace").strip().splitlines()
    last = lines[-1] if lines else f"exit code {code}"
    return f"{job.name} failed: {last} (all of it: {job.log}); fix it and run the same command"


def end_with_parent() -> None:
    """End this process when standard input closes; for a worker, in a thread."""
    # Not by sys.stdin, whose lock this thread would hold when the interpreter ends.
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(1)
