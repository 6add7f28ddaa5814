"""Answers to the exercises by people who have not read the checks: wrong ones must fail, right ones
must pass.

    python -m tests.course.judging [FOLDER] [--exercises FIRST LAST] [--result NAME]

The folder has one folder for each exercise (01_attention, 02_masks, …) with `wrong` and `right`,
and in them one file for each answer, as a learner would save it; or one file for each exercise
(01_attention.toml, …), as blind_answers has them, in which each wrong answer has its reason. A
function that an answer leaves out is the reference's."""

import argparse
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import tomllib
from collections.abc import Container
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path

from clearhead.course.checking import examine_answer
from clearhead.course.exercises import EXERCISES, Exercise
from clearhead.course.loading import load_file
from clearhead.course.verdict import Verdict
from clearhead.doctor.user_files import first_line
from tools.result import write_result

BLIND = Path(__file__).parent / "blind_answers"
SECONDS = max(exercise.seconds for exercise in EXERCISES)  # of processor time
SECONDS_BY_THE_CLOCK = 3600  # for an answer that waits without computing
KINDS = ("wrong", "right")


@dataclass(frozen=True)
class Answer:
    """One file, and what the checks say about it."""

    exercise: Exercise
    kind: str
    file: Path
    verdict: Verdict

    @property
    def as_expected(self) -> bool:
        """A wrong answer fails, a right one passes."""
        return self.verdict.complete is (self.kind == "right")


def answer_files(folder: Path) -> list[tuple[Exercise, str, Path]]:
    """Every file of the folder, with its exercise and its kind."""
    return [
        (exercise, kind, file)
        for exercise in EXERCISES
        for kind in KINDS
        for file in sorted((folder / exercise.name / kind).glob("*.py"))
    ]


def unpack(folder: Path, into: Path) -> Path:
    """The answers of the folder's TOML files as one file each; the folder itself if it has none."""
    packed = sorted(folder.glob("*.toml"))
    for file in packed:
        for kind, answers in tomllib.loads(file.read_text(encoding="utf-8")).items():
            place = into / file.stem / kind
            place.mkdir(parents=True)
            for name, answer in answers.items():
                (place / f"{name}.py").write_text(answer["code"], encoding="utf-8")
    return into if packed else folder


def judge(exercise: Exercise, file: Path) -> Verdict:
    """The verdict on a file. It runs the file in this process."""
    try:
        learned = load_file(file)
    except (Exception, SystemExit) as error:
        n_checks = len(exercise.check_names)
        return Verdict(n_checks=n_checks, trouble="error", message=first_line(error))
    functions = {name: learned[name] for name in exercise.functions if name in learned}
    answers = {**exercise.solution(), **functions}
    return examine_answer(exercise.checks, exercise.mistakes, exercise.probes, answers, str(file))


def judge_apart(exercise: Exercise, file: Path) -> Verdict:
    """The same in a process of its own, which may crash or not end."""
    context = multiprocessing.get_context("fork")  # torch is imported once, here
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_judge_and_send, args=(exercise, file.resolve(), theirs))
    process.start()
    theirs.close()
    try:
        came = ours.poll(SECONDS_BY_THE_CLOCK)
        verdict = Verdict(**ours.recv()) if came else Verdict(trouble="time")
    except EOFError:
        process.join()
        late = process.exitcode == -signal.SIGXCPU
        verdict = Verdict(trouble="time" if late else "crash")
    process.kill()
    process.join()
    return verdict


def _judge_and_send(exercise: Exercise, file: Path, out: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 9))  # busy machines
    with tempfile.TemporaryDirectory() as empty:
        os.chdir(empty)  # no folder of exercises: `earlier` is the reference
        out.send(judge(exercise, file).as_json())


def count_answers(answers: list[Answer]) -> dict[str, dict[str, int]]:
    """For each exercise with answers: how many there are, how many fail or pass as they should, and
    how many wrong ones are called by a name."""
    counts: dict[str, dict[str, int]] = {}
    for exercise in EXERCISES:
        own = [each for each in answers if each.exercise is exercise]
        if not own:
            continue
        wrong, right = ([each for each in own if each.kind == kind] for kind in KINDS)
        counts[exercise.name] = {
            "wrong": len(wrong),
            "wrong_that_fail": sum(each.as_expected for each in wrong),
            "wrong_with_a_name": sum(bool(each.verdict.mistakes) for each in wrong),
            "right": len(right),
            "right_that_pass": sum(each.as_expected for each in right),
        }
    return counts


def judge_all(folder: Path, result: str | None, numbers: Container[int] = range(1, 100)) -> int:
    """Prints the counts and every answer that the checks misjudge, of the exercises with these
    numbers."""
    import_module("torch._dynamo")  # as an optimizer's first step does: once, not in each process
    with tempfile.TemporaryDirectory() as unpacked:
        answers = [
            Answer(exercise, kind, file, judge_apart(exercise, file))
            for exercise, kind, file in answer_files(unpack(folder, Path(unpacked)))
            if exercise.number in numbers
        ]
    if not answers:
        print(f"{folder} holds no answers: make {EXERCISES[0].name}/wrong/NAME.py", file=sys.stderr)
        return 2
    counts = count_answers(answers)
    total = {key: sum(row[key] for row in counts.values()) for key in next(iter(counts.values()))}
    for name, row in {**counts, "all": total}.items():
        print(
            f"{name:<20} wrong {row['wrong_that_fail']:>3} of {row['wrong']:>3} fail, "
            f"{row['wrong_with_a_name']:>3} by name; "
            f"right {row['right_that_pass']:>3} of {row['right']:>3} pass"
        )
    misjudged = {
        f"{each.exercise.name}/{each.kind}/{each.file.stem}": each.verdict
        for each in answers
        if not each.as_expected
    }
    for name, verdict in misjudged.items():
        print(f"misjudged: {name}: {verdict.failed} {verdict.message}")
    if result is not None:
        write_result(result, {"all": total, "misjudged": list(misjudged), "exercises": counts})
    return 1 if misjudged else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=BLIND)
    parser.add_argument("--result", metavar="NAME")
    parser.add_argument("--exercises", type=int, nargs=2, default=(1, len(EXERCISES)))
    chosen = parser.parse_args()
    first, last = chosen.exercises
    sys.exit(judge_all(chosen.folder, chosen.result, range(first, last + 1)))
