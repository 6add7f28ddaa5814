"""The process in which a learner's files are checked, in the learner's folder: `python -P -m
clearhead.course.child RESULT NAME…`. Each verdict is one line of the file RESULT, written as soon
as it is known, so that a file that ends the process does not cost other files their verdicts."""

import contextlib
import io
import json
import signal
import sys
from pathlib import Path
from types import FrameType

import torch

from clearhead.course import BlankError
from clearhead.course.checking import OutOfTimeError, examine_answer, line_in
from clearhead.course.exercises import EXERCISES, Exercise
from clearhead.course.imports import taken_parts
from clearhead.course.loading import load_file
from clearhead.course.verdict import Verdict
from clearhead.doctor.user_files import first_line

MEMORY = 8 * 2**30
MAX_PRINTED = 2000


def main(result: Path, names: list[str]) -> None:
    """Check the exercises of the current folder."""
    torch.set_num_threads(1)
    _bound_memory()
    by_name = {exercise.name: exercise for exercise in EXERCISES}
    for name in names:
        exercise = by_name[name]
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            _start_clock(exercise.seconds)
            verdict = _check(exercise)
            _stop_clock()
        verdict.printed = said.getvalue()[-MAX_PRINTED:]
        line = json.dumps({"name": name, **verdict.as_json()}, ensure_ascii=False)
        with result.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def _check(exercise: Exercise) -> Verdict:
    file = Path(exercise.file)
    verdict = Verdict(n_checks=len(exercise.checks))
    try:
        learned = load_file(file)
    except SyntaxError as error:
        # Its text would name file and line once more.
        message = f"{type(error).__name__}: {error.msg}"
        verdict.trouble, verdict.message, verdict.line = "syntax", message, error.lineno
        return verdict
    except BlankError as error:
        verdict.trouble, verdict.line = "blank", line_in(error, str(file))
        return verdict
    except OutOfTimeError as error:
        verdict.trouble, verdict.line = "time", line_in(error, str(file))
        return verdict
    except (Exception, SystemExit) as error:
        verdict.trouble, verdict.message = "error", first_line(error)
        verdict.line = line_in(error, str(file))
        return verdict
    try:
        verdict = examine_answer(
            exercise.checks, exercise.mistakes, exercise.probes, learned, str(file)
        )
        verdict.imported = taken_parts(file.read_bytes(), exercise, learned)
        return verdict
    except OutOfTimeError as error:  # while a mistake was looked for
        verdict.trouble, verdict.line = "time", line_in(error, str(file))
        return verdict


def _start_clock(seconds: int) -> None:
    """An endless loop is interrupted in its line. Processor time counts: on a busy machine a right
    answer takes longer by the clock. Where there are no signals, and where an answer waits instead
    of computing, the parent's limit ends the process."""
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGPROF, _ring)
        signal.setitimer(signal.ITIMER_PROF, seconds)


def _stop_clock() -> None:
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, 0)


def _ring(_: int, __: FrameType | None) -> None:
    raise OutOfTimeError


def _bound_memory() -> None:
    """A tensor that is too large is an error of the learner's file, not the end of the machine."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
