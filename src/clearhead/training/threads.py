"""Chooses the number of threads of a run.

More threads than free cores wait for each other: with other programs on two cores, a step with two
threads was measured to take 13 times as long as with one. Therefore, the number is chosen by timing
real steps when a run begins, and is stored in the run's folder: sums over another number of threads
may differ in their last bits, and a run must resume exactly."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import torch

from clearhead.config import Recipe, with_values
from clearhead.data.corpus import Corpus
from clearhead.data.manifest import read_note, to_json
from clearhead.files import write_whole
from clearhead.models.own_parts import NONE, OwnParts
from clearhead.training.distributed import Ranks
from clearhead.training.loop import take_next_step
from clearhead.training.run import Run, open_trial

THREADS = "threads.json"
"""A file in a run's folder: the number of threads, and what led to it."""
TRIED_FOR = 1.0  # seconds of timing with each number of threads
NEARLY = 1.1  # times as long as the fastest: still as good, with fewer threads
MOST = 4096  # the highest number of threads; a folder that names more is damaged
BUSY = 0.8  # share of a core: if less is free, other programs compute


@dataclass(frozen=True, kw_only=True)
class ThreadChoice:
    """A number of threads, and why."""

    threads: int
    why: str = ""
    seconds: dict[int, float] = field(default_factory=dict)
    """The seconds of a step with each number that was tried."""

    @property
    def planned(self) -> float | None:
        """The measured seconds of a step; None: no step was timed."""
        return self.seconds.get(self.threads)

    @property
    def compared(self) -> str:
        """The seconds of a step with each other number of threads that was tried, as a multiple."""
        times = ", ".join(
            f"{_times_as_long(seconds / self.seconds[self.threads])} with {threads}"
            for threads, seconds in sorted(self.seconds.items())
            if threads != self.threads
        )
        return times and f"since a step takes {times}"

    def __str__(self) -> str:
        return f"threads: {self.threads}{self.why and f', {self.why}'}"


def _times_as_long(ratio: float) -> str:
    return f"{ratio:.2g} times as long" if ratio > NEARLY else "about as long"


def candidates(most: int) -> list[int]:
    """Return the numbers of threads to try: all cores, half of them, and one."""
    return sorted({most, max(1, most // 2), 1}, reverse=True)


def choose_threads(
    recipe: Recipe, corpus: Corpus, ranks: Ranks, own_parts: OwnParts = NONE
) -> ThreadChoice:
    """Choose the number of threads by timing steps of a trial run, which are discarded. Fewer
    threads are tried as long as they are no slower: on an idle machine with many cores, a step with
    one thread could take minutes. Nothing is timed if there is no choice, if the run uses an
    accelerator, if each number of threads would compile the layers anew, or if torchrun sets the
    number of each rank."""
    most = torch.get_num_threads()
    if most == 1 or ranks.device.type != "cpu" or ranks.world > 1 or recipe.train.compile:
        return ThreadChoice(threads=most)
    run = open_trial(with_values(recipe, {"train.workers": 0}), corpus, ranks, own_parts)
    run.loader.epochs = None  # there are always enough batches to time
    run.objective.train()
    seconds: dict[int, float] = {}
    for threads in candidates(most):
        with computing_with(threads):
            seconds[threads] = _seconds_of_a_step(run)
        if seconds[threads] > NEARLY * min(seconds.values()):
            break
    return pick(seconds)


def pick(seconds: dict[int, float]) -> ThreadChoice:
    """Return the lowest number of threads that is nearly as fast as any."""
    fastest = min(seconds.values())
    threads = min(n for n, duration in seconds.items() if duration <= NEARLY * fastest)
    times = ", ".join(f"{seconds[n]:.3f} s with {n}" for n in sorted(seconds))
    return ThreadChoice(threads=threads, why=f"since a step takes {times}", seconds=seconds)


def _seconds_of_a_step(run: Run) -> float:
    times: list[float] = []
    for batch in islice(run.loader, 1000):
        started = time.perf_counter()
        run.state = run.state.after(take_next_step(run, batch))
        times.append(time.perf_counter() - started)
        if len(times) > 1 and sum(times) > TRIED_FOR:
            break
    timed = sorted(times[1:])  # the first step allocates memory and starts threads
    return timed[len(timed) // 2]


@contextmanager
def computing_with(threads: int) -> Iterator[None]:
    """Inside the block, torch computes with this many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def threads_of_run(
    folder: Path,
    asked: int | None,
    ranks: Ranks,
    choose: Callable[[], ThreadChoice],
    *,
    has_begun: bool,
) -> tuple[ThreadChoice, str]:
    """Return the number of threads of a run, and a warning or "". The number is, in this order: the
    number that the user gave; the number with which the run began; for a new run, the number that
    `choose` measures."""
    noted = None if ranks.world > 1 else _noted(folder)  # torchrun sets the number of each rank
    if asked is not None:
        choice = ThreadChoice(threads=asked, why="as given")
    elif noted is not None:
        choice = noted
    elif has_begun:  # written by a version that left the number to torch
        choice = ThreadChoice(threads=torch.get_num_threads())
    else:
        choice = choose()
    changes = noted is not None and noted.threads != choice.threads
    warning = ""
    if noted is not None and changes and has_begun:
        change = f"threads was {noted.threads} and is now {choice.threads}"
        warning = f"warning: steps may differ in their last bits: {change}"
    if ranks.world == 1 and (noted is None or changes):
        write_whole(folder / THREADS, to_json(vars(choice)))
    return choice, warning


def _noted(folder: Path) -> ThreadChoice | None:
    """Return the number with which a run began; None: its folder names none, or a wrong one."""
    note = read_note(folder / THREADS)
    threads = note.get("threads")
    if type(threads) is not int or not 1 <= threads <= MOST:
        return None
    seconds = _read_seconds(note.get("seconds"))
    return ThreadChoice(threads=threads, why="as this run began", seconds=seconds)


def _read_seconds(noted: object) -> dict[int, float]:
    """Return the seconds of a step by the number of threads. They are only for a message: the
    record may be damaged, or may come from somebody else."""
    return {
        int(name): value
        for name, value in (noted if isinstance(noted, dict) else {}).items()
        if isinstance(name, str) and name.isdecimal() and len(name) < 5 and type(value) is float
    }


def free_share(seconds: float = 0.2) -> float:
    """Return the share of a core that this process gets when it wants one: 1 on an idle machine."""
    started, computed = time.perf_counter(), time.process_time()
    while time.perf_counter() - started < seconds:
        pass
    return min(1.0, (time.process_time() - computed) / (time.perf_counter() - started))
