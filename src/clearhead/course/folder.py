"""Makes and checks a learner's folder, and records what has been done in it."""

import json
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

from clearhead.course.exercises import COURSE_ORDER, EXERCISES, Exercise
from clearhead.course.phrasebook import phrases, refusal
from clearhead.course.state import STATE, LearnLanguage, LearnState, hash_of, spare_name
from clearhead.course.verdict import Trouble, Verdict
from clearhead.errors import DataError, closest
from clearhead.files import refuse_unusual, write_whole
from clearhead.processes import start_module

FOLDER = Path("clearhead-learn")
SOLUTIONS = "solutions"
PATIENCE = 4.0
"""The time that a process may take by the clock if it does not end by itself, as a multiple of its
exercise's seconds. It is first interrupted after those seconds of processor time."""
MAX_RESULT = 10_000_000


def find_exercise(name: str, language: LearnLanguage = "en") -> Exercise:
    """Find an exercise by its name, its number or its file: 03_heads, 3, 03, 03_heads.py."""
    for exercise in EXERCISES:
        accepted = (exercise.name, exercise.file, exercise.topic, str(exercise.number))
        if name in accepted or name == f"{exercise.number:02}":
            return exercise
    say, names = phrases(language), [exercise.name for exercise in EXERCISES]
    near = closest(name, names)
    remedy = (
        say["did_you_mean"].format(name=near)
        if near
        else say["choose"].format(names=say["comma"].join(names))
    )
    raise refusal(language, "no_exercise", name=name, remedy=remedy)


def missing_file(file: Path, exercise: Exercise, language: LearnLanguage) -> DataError:
    """Return the error for an exercise whose file does not exist."""
    return refusal(language, "no_file", file=file, name=exercise.name)


class LearnFolder:
    """The folder in which a learner works."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = LearnState.read(path)

    @classmethod
    def open(cls, path: Path, language: LearnLanguage | None = None) -> "LearnFolder":
        """Open an existing folder of exercises, which remembers its language unless one is
        given."""
        if not any((path / exercise.file).is_file() for exercise in EXERCISES):
            raise refusal(language or "en", "no_exercises", folder=path)
        refuse_unusual(path)
        folder = cls(path)
        folder.state.language = language or folder.state.language
        return folder

    @classmethod
    def make(cls, path: Path, language: LearnLanguage) -> "LearnFolder":
        """Make a new folder. Files that already exist do not change."""
        if path.exists() and not path.is_dir():
            raise refusal(language, "is_a_file", path=path)
        path.mkdir(parents=True, exist_ok=True)
        refuse_unusual(path)
        folder = cls(path)
        folder.state.language = language
        for exercise in EXERCISES:
            if not (path / exercise.file).exists():
                write_whole(path / exercise.file, exercise.original(language))
        folder.state.current = folder.state.current or COURSE_ORDER[0].name
        folder.save()
        return folder

    @property
    def current(self) -> Exercise:
        """The exercise on which the learner works."""
        name = self.state.current
        by_name = {exercise.name: exercise for exercise in EXERCISES}
        return by_name.get(name or "", COURSE_ORDER[0])

    def save(self) -> None:
        """Write the state."""
        self.state.write(self.path)

    def read_again(self) -> None:
        """Read the state again before a change, to keep what a command in another terminal has
        recorded meanwhile."""
        if (self.path / STATE).is_file():
            self.state = replace(LearnState.read(self.path), language=self.state.language)

    def has_passed(self, exercise: Exercise) -> bool:
        """Tell whether exactly this file has passed."""
        file = self.path / exercise.file
        passed = self.state.progress(exercise.name).passed
        return passed is not None and file.is_file() and hash_of(file) == passed

    def before(self, exercise: Exercise) -> Exercise | None:
        """Return the exercise before this one in the course; None at the beginning."""
        index = COURSE_ORDER.index(exercise)
        return COURSE_ORDER[index - 1] if index else None

    def is_not_before_current(self, exercise: Exercise) -> bool:
        """Tell whether this is the current exercise or a later one in the course."""
        return COURSE_ORDER.index(exercise) >= COURSE_ORDER.index(self.current)

    def next_after(self, exercise: Exercise) -> Exercise | None:
        """Return the next exercise of the course that has not passed; None at the end."""
        index = COURSE_ORDER.index(exercise)
        others = COURSE_ORDER[index + 1 :] + COURSE_ORDER[:index]
        return next((other for other in others if not self.has_passed(other)), None)

    def check(self, exercises: Sequence[Exercise]) -> dict[str, Verdict]:
        """Check files and record the results. If a file has passed, its reference is written to
        `solutions`."""
        hashes: dict[str, str] = {}
        for exercise in exercises:
            file = self.path / exercise.file
            if not file.is_file():
                raise missing_file(file, exercise, self.state.language)
            hashes[exercise.name] = hash_of(file)
        verdicts = check_files(self.path, exercises)
        self.read_again()
        for exercise in exercises:
            verdict, progress = verdicts[exercise.name], self.state.progress(exercise.name)
            progress.attempts += verdict.trouble != "blank"
            for mistake in verdict.mistakes:
                progress.mistakes[mistake] = progress.mistakes.get(mistake, 0) + 1
            if verdict.complete:
                # A file that was saved meanwhile is not, or may not be, the one that was checked.
                if hash_of(self.path / exercise.file) == hashes[exercise.name]:
                    progress.passed = hashes[exercise.name]
                self.put_solution(exercise)
        self.save()
        return verdicts

    def hint(self, exercise: Exercise) -> tuple[int, str]:
        """Return the next hint and its number, or the last hint again if all were shown."""
        self.read_again()
        hints = exercise.texts(self.state.language)["hints"]
        progress = self.state.progress(exercise.name)
        progress.hints = min(progress.hints + 1, len(hints))
        self.save()
        return progress.hints, hints[progress.hints - 1]

    def solution(self, exercise: Exercise) -> str:
        """Return the reference solution. The folder records that the solution was shown, unless the
        exercise has passed."""
        self.read_again()
        if not self.has_passed(exercise):
            self.state.progress(exercise.name).solution_shown = True
            self.save()
        return exercise.solution_text(self.state.language)

    def put_solution(self, exercise: Exercise) -> None:
        """Put the solution beside the learner's files, for comparison."""
        (self.path / SOLUTIONS).mkdir(exist_ok=True)
        text = exercise.solution_text(self.state.language)
        write_whole(self.path / SOLUTIONS / exercise.file, text)

    def reset(self, exercise: Exercise) -> Path | None:
        """Restore the file with blanks. Returns where the learner's version is kept."""
        file, kept = self.path / exercise.file, None
        if file.exists():
            kept = spare_name(file, "bak")
            file.replace(kept)
        write_whole(file, exercise.original(self.state.language))
        return kept


def check_files(folder: Path, exercises: Sequence[Exercise]) -> dict[str, Verdict]:
    """Return the verdict on each file of the folder, from a separate process. If a file ends the
    process, its verdict is "crash", and another process checks the rest."""
    verdicts: dict[str, Verdict] = {}
    waiting = list(exercises)
    while waiting:
        verdicts |= _run(folder, waiting)
        left = [exercise for exercise in waiting if exercise.name not in verdicts]
        if left:
            verdicts[left[0].name] = Verdict(n_checks=len(left[0].check_names), trouble="crash")
        waiting = left[1:]
    return verdicts


def _run(folder: Path, exercises: Sequence[Exercise]) -> dict[str, Verdict]:
    with tempfile.TemporaryDirectory(prefix="clearhead-learn-") as temporary:
        result = Path(temporary) / "verdicts"
        names = [exercise.name for exercise in exercises]
        nothing = subprocess.DEVNULL
        with start_module(
            "clearhead.course.child",
            str(result),
            *names,
            folder=folder,
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            OMP_NUM_THREADS="1",
            PYTHONDONTWRITEBYTECODE="1",
        ) as process:
            try:
                process.wait(PATIENCE * sum(exercise.seconds for exercise in exercises))
            except subprocess.TimeoutExpired:
                pass
            finally:
                process.kill()
        if not result.is_file() or result.stat().st_size > MAX_RESULT:
            return {}
        return _read(result.read_text(encoding="utf-8"), names)


def _read(lines: str, names: list[str]) -> dict[str, Verdict]:
    """A learner's code could write anything here: what is no verdict is left out."""
    verdicts: dict[str, Verdict] = {}
    for line in lines.split("\n"):
        try:
            document = json.loads(line)
            name = document.pop("name")
            verdict = Verdict(**document)
        except (ValueError, TypeError, KeyError, AttributeError):
            continue
        if name in names and verdict.trouble in (None, *get_args(Trouble)):
            verdicts[name] = verdict
    return verdicts
