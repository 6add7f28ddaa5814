"""Formats verdicts, hints and tables as text, in the learner's language."""

import re
import textwrap

from rich.cells import cell_len, set_cell_size

from clearhead.course.exercises import COURSE_ORDER, Exercise
from clearhead.course.folder import LearnFolder
from clearhead.course.phrasebook import phrases
from clearhead.course.state import LearnLanguage
from clearhead.course.verdict import Verdict

WIDTH = 84
IMPORTS = {
    "F": "import torch.nn.functional as F",
    "Tensor": "from torch import Tensor",
    "einops": "import einops",
    "math": "import math",
    "nn": "from torch import nn",
    "np": "import numpy as np",
    "torch": "import torch",
}
"""Names that are often used before they are imported."""


def tell_verdict(exercise: Exercise, verdict: Verdict, language: LearnLanguage) -> str:
    """Say which checks pass, what the first failing check measured, and the mistake if it is
    known."""
    say, texts = phrases(language), exercise.texts(language)
    count = say["count"].format(passed=len(verdict.passed), all=verdict.n_checks)
    lines = [exercise.file + " " * (WIDTH - cell_len(exercise.file + count)) + count]
    lines += [f"✓ {texts['checks'][name]['name']}" for name in verdict.passed]
    if verdict.failed is not None:
        lines.append(f"✗ {texts['checks'][verdict.failed]['name']}")
    lines += [f"  {line}" for line in _reasons(exercise, verdict, language)]
    if verdict.imported:
        taken = say["imported"].format(names=say["comma"].join(verdict.imported))
        lines += [f"  {line}" for line in wrap(taken)]
    if verdict.printed.strip():
        lines += [say["printed"], *(f"  {line}" for line in verdict.printed.rstrip().splitlines())]
    return "\n".join(lines)


def _reasons(exercise: Exercise, verdict: Verdict, language: LearnLanguage) -> list[str]:
    say, texts = phrases(language), exercise.texts(language)
    said: list[str] = []
    if verdict.trouble is not None:
        line = "" if verdict.line is None else say["line"].format(line=verdict.line)
        trouble = say[f"trouble_{verdict.trouble}"]
        about = {"message": verdict.message, "file": exercise.file, "seconds": exercise.seconds}
        said.append(trouble.format(line=line, **about))
        if verdict.trouble == "blank":
            said.append(say["first_hint"].format(hint=texts["hints"][0]))
        if (name := re.match(r"NameError: name '(\w+)' is not defined", verdict.message)) and (
            line := IMPORTS.get(name[1])
        ):
            said.append(say["not_imported"].format(name=name[1], line=line))
    elif verdict.failed is not None:
        said.append(texts["checks"][verdict.failed]["missed"].format_map(_Numbers(verdict.numbers)))
    if len(verdict.mistakes) > 1:
        said.append(say["two_mistakes"])
    for name in verdict.mistakes:
        mistake = texts["mistakes"][name]
        said.append(mistake["says"])
        page = texts.get("page")  # of an exercise that belongs to no numbered chapter
        where = [page or say["chapter"].format(n=texts["chapter"])]
        if "erratum" in mistake:
            where.append(say["erratum"].format(n=mistake["erratum"]))
        said.append(" · ".join(where))
    return [line for text in said for line in wrap(text)]


class _Numbers(dict[str, str]):
    """A number that a check does not give in every case is a dash."""

    def __missing__(self, key: str) -> str:
        return "–"


def wrap(text: str, width: int = WIDTH - 2) -> list[str]:
    """Break text into lines of at most this width. Chinese text has no spaces to break at, and each
    character is two columns wide."""
    if cell_len(text) == len(text):
        return textwrap.wrap(text, width)
    lines, line = [], ""
    for piece in _pieces(text):
        if line and cell_len(line + piece.rstrip()) > width and piece.strip() not in _NEVER_FIRST:
            lines.append(line.rstrip())
            line = piece.lstrip()
        else:
            line += piece
    return [*lines, line.rstrip()]


_NEVER_FIRST = set("，。；：、）”！？")


def _pieces(text: str) -> list[str]:
    """Latin words with the blank that follows them, and single Chinese characters."""
    pieces: list[str] = []
    for character in text:
        narrow = cell_len(character) == 1
        if narrow and pieces and cell_len(pieces[-1][-1]) == 1 and not pieces[-1].endswith(" "):
            pieces[-1] += character
        else:
            pieces.append(character)
    return pieces


def tell_list(folder: LearnFolder) -> str:
    """List every exercise in the order of the course: passed, current, solution shown."""
    language = folder.state.language
    lines = []
    for exercise in COURSE_ORDER:
        progress = folder.state.progress(exercise.name)
        mark = "✓" if folder.has_passed(exercise) else " "
        mark += "●" if exercise is folder.current else " "
        mark += "s" if progress.solution_shown else " "
        title = exercise.texts(language)["title"]
        lines.append(f"{mark} {exercise.name:<19} {title}")
    return "\n".join([*lines, "", phrases(language)["legend"]])


def table(rows: list[list[str]], widths: list[int]) -> str:
    """Make columns as wide as their content, but no wider than this. Text that is cut ends in …"""
    rows = [[shorten(cell, width) for cell, width in zip(row, widths)] for row in rows]
    used = [max(cell_len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(set_cell_size(cell, w) for cell, w in zip(row, used)).rstrip() for row in rows
    )


def shorten(text: str, width: int) -> str:
    """Shorten a text to at most this many columns of a terminal."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + "…"
