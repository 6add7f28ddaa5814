"""Shows a class as a table. No state file is trusted: every file is checked again. Attempts and
hints are those that the student's folder reports in `learn.json`."""

import csv
import io
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from clearhead.course.exercises import EXERCISES, Exercise
from clearhead.course.folder import check_files
from clearhead.course.phrasebook import phrases
from clearhead.course.state import LearnLanguage, LearnState
from clearhead.course.telling import cell_len, shorten, table, wrap
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
        """The number of exercises that pass now with the student's own code."""
        return sum(v.complete and not v.imported for v in self.verdicts.values())

    @property
    def n_imported(self) -> int:
        """The number of exercises that pass with the package's solution."""
        return sum(v.complete and bool(v.imported) for v in self.verdicts.values())

    @property
    def stopped_at(self) -> tuple[Exercise, Verdict] | None:
        """The first exercise that does not pass."""
        for exercise in EXERCISES:
            verdict = self.verdicts.get(exercise.name)
            if verdict is not None and not verdict.complete:
                return exercise, verdict
        return None

    def mistakes(self, language: LearnLanguage) -> Counter[str]:
        """The mistakes that were recognised now, and those that the folder reports."""
        counted: Counter[str] = Counter()
        for exercise in EXERCISES:
            progress, verdict = self.state.progress(exercise.name), self.verdicts.get(exercise.name)
            counts = {k: v for k, v in progress.mistakes.items() if k in exercise.mistake_names}
            for mistake in verdict.mistakes if verdict else []:
                counts[mistake] = max(counts.get(mistake, 0), 1)
            for mistake, n in counts.items():
                counted[exercise.mistake_name(mistake, language)] += n
        return counted

    @property
    def n_hints(self) -> int:
        """The number of hints that were shown, as the folder reports it."""
        return sum(progress.hints for progress in self.state.exercises.values())


def read_class(folders: Sequence[Path]) -> Iterator[Student]:
    """Check each folder, as many at once as there are cores. This runs the students' code."""
    with ThreadPoolExecutor(os.cpu_count()) as at_once:
        yield from at_once.map(_student, folders)


def _student(folder: Path) -> Student:
    try:
        state = LearnState.read(folder)
    except ClearheadError as error:
        return Student(folder, {}, LearnState(), str(error))
    there = [each for each in EXERCISES if (folder / each.file).is_file()]
    return Student(folder, check_files(folder, there), state)


def _names(students: Sequence[Student]) -> dict[Path, str]:
    """The names of their folders; the whole path if several folders have the same name."""
    folders = [each.folder for each in students]
    apart = len({folder.name for folder in folders}) == len(folders)
    return {folder: folder.name if apart else str(folder) for folder in folders}


def class_table(students: Sequence[Student], language: LearnLanguage, width: int) -> str:
    """Return the class as a table: folder, number passed, where the student stopped, mistakes and
    hints; then the most frequent mistakes. The table is not wider than the terminal; `class_csv`
    has everything."""
    say, names = phrases(language), _names(students)
    rows = [[say[key] for key in ("folder", "passed", "stopped", "mistakes", "hints")]]
    for student in students:
        passed = say["n_imported" if student.n_imported else "n_passed"].format(
            passed=student.n_passed, all=len(EXERCISES), n=student.n_imported
        )
        where = student.error or _where(student, language)
        rows.append([names[student.folder], passed, where, "", str(student.n_hints)])
    widths = [18, 26, 30, 0, 6]
    used = sum(min(limit, max(cell_len(row[i]) for row in rows)) for i, limit in enumerate(widths))
    widths[3] = max(width - used - 2 * (len(widths) - 1), 12)
    for row, student in zip(rows[1:], students):
        row[3] = _fitting(student.mistakes(language), widths[3], language)
    made = Counter(name for student in students for name in student.mistakes(language))
    frequent = say["comma"].join(f"{name} ({n})" for name, n in made.most_common(3))
    last = say["frequent"].format(n=len(students), mistakes=frequent) if made else ""
    return "\n".join([table(rows, widths), *wrap(last, width)]).rstrip()


def _fitting(mistakes: Counter[str], width: int, language: LearnLanguage) -> str:
    """The most frequent mistakes that there is space for, and how many others there are."""
    say = phrases(language)
    shown = [f"{name} ×{n}" if n > 1 else name for name, n in mistakes.most_common()]
    for kept in range(len(shown), 0, -1):
        others = [say["more"].format(n=len(shown) - kept)] if kept < len(shown) else []
        text = say["comma"].join([*shown[:kept], *others])
        if cell_len(text) <= width:
            return text
    if not shown:
        return ""
    others = say["comma"] + say["more"].format(n=len(shown) - 1) if len(shown) > 1 else ""
    return shorten(shown[0], width - cell_len(others)) + others


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
    "folder", "exercise", "passed", "imported", "checks", "of", "failed_check", "mistakes",
    "trouble", "line",
    "reported_attempts", "reported_hints", "reported_solution_shown",
)  # fmt: skip


def class_csv(students: Sequence[Student]) -> str:
    """Return one row for each folder and exercise."""
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    out.writerow(COLUMNS)
    names = _names(students)
    for student in students:
        for exercise in EXERCISES:
            there = exercise.name in student.verdicts
            verdict = student.verdicts.get(exercise.name, Verdict())
            progress = student.state.progress(exercise.name)
            out.writerow(
                [
                    names[student.folder],
                    exercise.name,
                    int(there and verdict.complete),
                    " ".join(verdict.imported),
                    len(verdict.passed),
                    verdict.n_checks,
                    verdict.failed or "",
                    "; ".join(verdict.mistakes),
                    verdict.trouble or ("" if there else "missing file"),
                    verdict.line or "",
                    progress.attempts,
                    progress.hints,
                    int(progress.solution_shown),
                ]
            )
    return text.getvalue()
