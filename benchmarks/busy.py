"""Core seconds of `clearhead new` and `clearhead train` beside two busy loops, and on an idle
machine.

    python -m benchmarks.busy

Runs both commands on generated pairs, first alone and then beside as many busy loops as there are
cores, and counts the processor seconds (user and system) that each command used. The steps of
`train` are fixed, so that both runs do the same work. Run it on an idle machine. Writes
benchmarks/results/busy.json.
"""

import os
import random
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tools.result import write_result

LOOPS = os.cpu_count() or 1
PAIRS, STEPS, MINUTES = 20_000, 300, 5
AT_MOST = 1.6


@contextmanager
def busy_loops(n: int) -> Iterator[None]:
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def core_seconds(folder: Path, *words: object) -> tuple[float, str]:
    """What the command used of the processor, and what it said."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "clearhead", *map(str, words)],
        cwd=folder,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def write_pairs(folder: Path) -> None:
    """Sentences of made-up words, and the same words backwards."""
    draw = random.Random(1)
    words = ["".join(draw.choices("abdegiklmnoprstu", k=draw.randint(2, 8))) for _ in range(3000)]
    lines = [draw.choices(words, k=draw.randint(4, 14)) for _ in range(PAIRS)]
    (folder / "a.txt").write_text("".join(f"{' '.join(line)}\n" for line in lines))
    backwards = "".join(f"{' '.join(word[::-1] for word in line)}\n" for line in lines)
    (folder / "b.txt").write_text(backwards)


def main() -> None:
    measured: dict[str, dict[str, float]] = {}
    said: dict[str, list[str]] = {}
    with TemporaryDirectory(prefix="clearhead-busy-") as name:
        folder = Path(name)
        write_pairs(folder)
        for state, n in (("idle", 0), ("busy", LOOPS)):
            new = ["new", state, "--source", "a.txt", "--target", "b.txt", "--minutes", MINUTES]
            with busy_loops(n):
                seconds, out = core_seconds(folder, *new)
                core_seconds(folder, "prepare", "idle.toml", "--out", f"prepared/{state}")
                train = ["train", "idle.toml", "--train.steps", STEPS, "--folder", f"runs/{state}"]
                taken, lines = core_seconds(folder, *train, "--prepared", f"prepared/{state}")
            measured[state] = {"new": round(seconds, 1), "train": round(taken, 1)}
            shown = [*out.splitlines(), *lines.splitlines()]
            said[state] = [line for line in shown if "hreads: " in line or "Busy" in line]
    ratios = {verb: measured["busy"][verb] / measured["idle"][verb] for verb in ("new", "train")}
    path = write_result(
        "busy",
        {
            "busy_loops": LOOPS,
            "steps": STEPS,
            "core_seconds": measured,
            "ratios": {verb: round(ratio, 2) for verb, ratio in ratios.items()},
            "at_most": AT_MOST,
            "said": said,
        },
    )
    print(path.read_text(encoding="utf-8"))
    if max(ratios.values()) > AT_MOST:
        sys.exit(f"more than {AT_MOST} times the core seconds of an idle machine: {ratios}")


if __name__ == "__main__":
    main()
