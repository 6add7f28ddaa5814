"""A class as a table. No state file is trusted: every file is checked again. Attempts and hints
come from `learn.json` and are what the student's folder reports."""

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from clearhead.course.exercises import EXERCISES, Exercise
from clearhead.course.folder import check_files
from clearhead.course.state import LearnLanguage, LearnState
from clearhead.course.telling import phrases, table
from clearhead.course.verdict import Verdict
from clearhead.errors import ClearheadError


@dataclass(frozen=True)
class Student:
    """One folder of the class."""

    folder: Path
    verdicts: dict[str, Verdict]
    state: LearnState
    error: str = ""
    """Why the folder could not be read."""

    @property
    def n_passed(self) -> int:
        """Exercises that pass now."""
        return sum(verdict.complete for verdict in self.verdicts.values())

    @property
    def stopped_at(self) -> tuple[Exercise, Verdict] | None:
        """The first exercise that does not pass."""
        for exercise in EXERCISES:
            verdict = self.verdicts.get(exercise.name)
            if verdict is not None and not verdict.complete:
                return exercise, verdict
        return None

    @property
    def mistakes(self) -> Counter[str]:
        """Those that were recognised now, and those that the folder reports."""
        found: Counter[str] = Counter()
        for exercise in EXERCISES:
            progress, verdict = self.state.progress(exercise.name), self.verdicts.get(exercise.name)
            known = exercise.mistake_names
            found.update({k: v for k, v in progress.mistakes.items() if k in known})
            if verdict is not None and verdict.mistake is not None:
                found[verdict.mistake] = max(found[verdict.mistake], 1)
        return found

    @property
    def n_hints(self) -> int:
        """As the folder reports."""
        return sum(progress.hints for progress in self.state.exercises.values())


def read_class(folders: Sequence[Path]) -> Iterator[Student]:
    """Checks each folder; this runs the students' code."""
    for folder in folders:
        try:
            state = LearnState.read(folder)
        except ClearheadError as error:
            yield Student(folder, {}, LearnState(), str(error))
            continue
        there = [each for each in EXERCISES if (folder / each.file).is_file()]
        yield Student(folder, check_files(folder, there), state)


def _names(students: Sequence[Student]) -> dict[Path, str]:
    """Of their folders; the whole path where some are called the same."""
    folders = [each.folder for each in students]
    apart = len({folder.name for folder in folders}) == len(folders)
    return {folder: folder.name if apart else str(folder) for folder in folders}


def class_table(students: Sequence[Student], language: LearnLanguage) -> str:
    """Folder, passed, where it stopped, mistakes and hints; then the most frequent mistakes."""
    say = phrases(language)
    comma = say["comma"]
    rows = [[say["folder"], say["passed"], say["stopped"], say["mistakes"], say["hints"]]]
    names = _names(students)
    for each in students:
        rows.append(
            [
                names[each.folder],
                f"{each.n_passed} / {len(EXERCISES)}",
                each.error or _where(each, language),
                comma.join(f"{name} ×{n}" if n > 1 else name for name, n in each.mistakes.items()),
                str(each.n_hints),
            ]
        )
    made = Counter(name for each in students for name in each.mistakes)
    frequent = comma.join(f"{name} ({n})" for name, n in made.most_common(3))
    last = say["frequent"].format(n=len(students), mistakes=frequent) if made else ""
    return "\n".join([table(rows), last]).rstrip()


def _where(student: Student, language: LearnLanguage) -> str:
    say = phrases(language)
    if student.stopped_at is None:
        return say["all_done"] if student.verdicts else say["no_files"]
    exercise, verdict = student.stopped_at
    if verdict.failed is not None:
        number = exercise.check_names.index(verdict.failed) + 1
        return say["stopped_check"].format(name=exercise.name, n=number)
    line = "" if verdict.line is None else say["line"].format(line=verdict.line)
    reason = verdict.message.split(":")[0] or say[f"short_{verdict.trouble}"]
    return say["stopped_trouble"].format(file=exercise.file, line=line, reason=reason)


COLUMNS = (
    "folder", "exercise", "passed", "checks", "of", "failed_check", "mistake", "trouble", "line",
    "reported_attempts", "reported_hints", "reported_solution_shown",
)  # fmt: skip


def class_csv(students: Sequence[Student]) -> str:
    """One row for each folder and exercise."""
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    out.writerow(COLUMNS)
    names = _names(students)
    for each in students:
        for exercise in EXERCISES:
            there = exercise.name in each.verdicts
            verdict = each.verdicts.get(exercise.name, Verdict())
            progress = each.state.progress(exercise.name)
            out.writerow(
                [
                    names[each.folder],
                    exercise.name,
                    int(there and verdict.complete),
                    len(verdict.passed),
                    verdict.n_checks,
                    verdict.failed or "",
                    verdict.mistake or "",
                    verdict.trouble or ("" if there else "missing file"),
                    verdict.line or "",
                    progress.attempts,
                    progress.hints,
                    int(progress.solution_shown),
                ]
            )
    return text.getvalue()
