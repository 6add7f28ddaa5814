"""Thousands of changed folders and files, each opened as their receiver would: our error or a
correct result, and never a hang, a crash, a write outside the folder, code, or memory beyond the
limit.

    python -m tests.fuzz                   # 500 cases, about half a minute
    python -m tests.fuzz --cases 10000     # resumes; writes benchmarks/results/fuzz.json

A case is one number: the same number makes the same case (`--only 1234` shows what it does). Cases
are forked from one warm process, each with limits on memory and time.
"""

import argparse
import gc
import json
import os
import random
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads would not survive a fork

import torch

from clearhead.cli import main as run_verb
from clearhead.errors import ClearheadError
from tests.fuzz.cases import MINE, Case, build, losses, make_case, train_on, use_all
from tools.result import write_result

SECONDS = 10
"""Of the processor."""
WAITING = 90
"""Seconds by the clock, for what waits and does not work; a busy machine takes its time."""
MEGABYTES = 1000
"""That a case may use beyond what the warm process has."""
CODE = ("os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "socket.connect", "pty.spawn")
GOOD = ("refused", "read")
WRITTEN = 1000
"""From so many cases on, the outcome of the first ones is worth a result file."""


NEW = 2
"""Steps that the receiver of a run takes."""
LOST = "are missing or changed; training resumes exactly"
ROOT = Path(__file__).parents[2]


class Outcome(NamedTuple):
    """What became of a case. Whatever is neither "refused" nor "read" is a violation."""

    number: int
    target: str
    kind: str
    change: str
    told: str


class Fuzzing:
    """The honest sender's things, and the cases that are made of them."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.honest = place / "honest"
        torch.set_num_threads(1)
        sys.dont_write_bytecode = True
        built = place / "case/sent"  # where every case is: recipes and manifests name files
        built.parent.mkdir()
        with _silent():
            build(built)
        built.rename(self.honest)
        self.wanted = self._wanted()

    def _wanted(self) -> list[str]:
        """The losses of the honest run, when its receiver trains on."""
        sent = self._copy()
        with _silent():
            assert run_verb(train_on(sent)) == 0
            use_all(sent)
        gc.collect()
        gc.freeze()  # a collection in a case would copy every page of this process
        return losses(sent / "run")

    def _copy(self) -> Path:
        case = self.place / "case"
        shutil.rmtree(case, ignore_errors=True)
        shutil.copytree(self.honest, case / "sent")
        (case / "home").mkdir()
        (case / "home/profile").write_text(MINE)
        return case / "sent"

    def run(self, number: int) -> Outcome:
        """One case."""
        sent = self._copy()
        case = make_case(sent, random.Random(f"case {number}"))
        kind, told = _forked(case, sent.parent)
        if kind in GOOD:
            home = sent.parent / "home"
            if os.listdir(home) != ["profile"] or (home / "profile").read_text() != MINE:
                kind, told = "write outside", "the receiver's own file was changed"
            elif kind == "read" and not case.sealed and case.change.startswith("train:"):
                found = losses(sent / "run")
                said = (sent / "run/log.txt").read_text(encoding="utf-8", errors="replace")
                # Lines of steps before may be lost, if the receiver is told; no step differs.
                same = found[-NEW:] == self.wanted[-NEW:] and LOST in said
                if found != self.wanted and not same:
                    kind, told = "wrong result", f"{len(found)} losses, not those of the run"
        return Outcome(number, case.target, kind, case.change, told)


def _forked(case: Case, place: Path) -> tuple[str, str]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _act(case, place, writing)
    os.close(writing)
    answer, ends = b"", time.monotonic() + WAITING
    while True:
        ready, _, _ = select.select([reading], [], [], max(0.0, ends - time.monotonic()))
        piece = os.read(reading, 65536) if ready else b""
        answer += piece
        if not piece:
            break
    late = time.monotonic() >= ends
    if late:
        os.kill(child, signal.SIGKILL)
    os.close(reading)
    _, status = os.waitpid(child, 0)
    if late:
        return "hang", f"more than {WAITING} s by the clock"
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
        return "hang", f"more than {SECONDS} s of the processor"
    if not answer:
        return "crash", f"ended with status {status}"
    kind, told = json.loads(answer)
    return kind, told


def _act(case: Case, place: Path, writing: int) -> None:
    """In the child: acts, tells what came of it, and ends."""
    answer = ("crash", "")
    outside: list[str] = []
    try:
        log = place / "log"
        descriptor = os.open(log, os.O_RDWR | os.O_CREAT)
        for stream in (1, 2):
            os.dup2(descriptor, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        _limit()
        os.fsync = _no_sync
        sys.addaudithook(_watch(place, outside))
        try:
            code = case.act()
            answer = ("refused" if code == 2 else "read", f"code {code}")
        except SystemExit as error:
            answer = ("refused", f"exit {error.code}")
        except ClearheadError as error:
            answer = ("refused", str(error))
        sys.stdout.flush()
        sys.stderr.flush()
        said = log.read_text(errors="replace")
        if answer[0] == "refused":
            answer = ("refused", said[-300:])
        if "not enough memory" in said and case.target != "recipe":
            answer = ("memory", said[-300:])
        if outside:
            answer = ("write outside", outside[0])
    except MemoryError:
        answer = ("memory", _trace())
    except BaseException as error:
        short = any(
            word in str(error) for word in ("allocate memory", "bad_alloc", "out of memory")
        )
        answer = ("memory" if short else "crash", _trace())
    finally:
        kind, told = answer
        os.write(writing, json.dumps((kind, _without_paths(told, place))).encode())
        os._exit(0)


def _no_sync(fd: object) -> None:
    """In a case: none of them cuts the power."""
    del fd


def _trace() -> str:
    """Where the present error comes from: the last calls, one a line, and the error."""
    kind, error, trace = sys.exc_info()
    calls = [
        f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(trace)
    ]
    last = "".join(traceback.format_exception_only(kind, error)).strip()
    return "\n".join([*calls[-8:], last[:400]])


def _without_paths(text: str, place: Path) -> str:
    """Files of the repository and of packages by their names there, and no other folder of this
    machine."""
    folders = {f"{place.resolve()}/": "", f"{place}/": "", f"{ROOT}/": ""}
    folders |= {f"{path}/": "" for path in sys.path if path.startswith("/")}
    folders |= {f"{tempfile.gettempdir()}/": "TEMP/", f"{Path.home()}/": "HOME/"}
    for folder in sorted(folders, key=len, reverse=True):
        text = text.replace(folder, folders[folder])
    return text


def _limit() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = used + MEGABYTES * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))


def _watch(place: Path, outside: list[str]) -> Any:
    """Notes every attempt to write outside the case, or to start something."""
    allowed = (str(place.resolve()), str(place), "/dev/null", "/proc/self")

    def strange(path: Any, folder: int = -1) -> bool:
        if isinstance(path, int) or path is None:
            return False
        start = os.getcwd() if folder < 0 else f"/proc/self/fd/{folder}"
        return not os.path.realpath(os.path.join(start, os.fsdecode(path))).startswith(allowed)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if writes and strange(path):
                outside.append(f"open {path!r}")
        elif event in ("os.rename", "os.link"):
            if strange(arguments[0], arguments[2]) or strange(arguments[1], arguments[3]):
                outside.append(f"{event} {arguments!r}")
        elif event in ("os.remove", "os.rmdir", "os.mkdir"):
            if strange(arguments[0], arguments[-1]):
                outside.append(f"{event} {arguments!r}")
        elif event in ("os.symlink", "os.truncate") and strange(arguments[-2]):
            outside.append(f"{event} {arguments!r}")
        elif event.startswith(CODE):
            outside.append(f"code: {event} {arguments!r:.200}")

    return hook


class _silent:  # noqa: N801 (reads as a word)
    """What is printed meanwhile is nobody's concern."""

    def __enter__(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self.before = os.dup(1), os.dup(2)
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)

    def __exit__(self, *_: object) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        for stream, before in zip((1, 2), self.before):
            os.dup2(before, stream)


def outcomes(numbers: Iterable[int]) -> Iterator[Outcome]:
    """Of the cases of these numbers."""
    with tempfile.TemporaryDirectory(prefix="clearhead-fuzz-") as place:
        fuzzing = Fuzzing(Path(place))
        for number in numbers:
            yield fuzzing.run(number)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--first", type=int, default=0, metavar="N", help="number of the first")
    parser.add_argument("--only", type=int, metavar="N", help="one case, and all that it told")
    parser.add_argument("--log", type=Path, default=Path("fuzz.jsonl"), help="to resume from")
    parser.add_argument("--fail", action="store_true", help="end with 1 after a violation")
    given = parser.parse_args()
    if given.only is not None:
        for outcome in outcomes([given.only]):
            print(*outcome, sep="\n")
        return
    lines = given.log.read_text().splitlines() if given.log.is_file() else []
    found = {number: Outcome(number, *rest) for number, *rest in map(json.loads, lines)}
    numbers = range(given.first, given.first + given.cases)
    started = time.monotonic()
    with given.log.open("a") as log:
        for outcome in outcomes(number for number in numbers if number not in found):
            found[outcome.number] = outcome
            log.write(json.dumps(outcome) + "\n")
            log.flush()
            if outcome.kind not in GOOD:
                print(outcome.number, outcome.target, outcome.kind, outcome.change, outcome.told)
    chosen = [found[number] for number in numbers]
    counts = Counter((each.target, each.kind) for each in chosen)
    for (target, kind), count in sorted(counts.items()):
        print(f"{target:<12}{kind:<16}{count:>7,}")
    print(f"{len(chosen):,} cases, {time.monotonic() - started:.0f} s")
    violations = [each for each in chosen if each.kind not in GOOD]
    if given.cases >= WRITTEN and given.first == 0:
        measured = {
            "cases": len(chosen),
            "first": given.first,
            "seconds_of_a_case": SECONDS,
            "megabytes_of_a_case": MEGABYTES,
            "outcomes": {
                target: {kind: counts[target, kind] for kind in sorted({k for _, k in counts})}
                for target in sorted({target for target, _ in counts})
            },
            "violations": [each._asdict() for each in violations],
        }
        print(f"wrote {write_result('fuzz', measured)}")
    if given.fail and violations:
        sys.exit(1)


if __name__ == "__main__":
    main()
