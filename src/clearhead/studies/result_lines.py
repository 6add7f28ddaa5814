"""The result file of a study: one JSON line for each finished run."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from types import NoneType
from typing import Any, TypeGuard

from clearhead.errors import DataError
from clearhead.files import open_plain, refuse_link, sync
from clearhead.studies.study_file import StudyPlan

RESULTS = "results.jsonl"
ResultLine = dict[str, Any]
"""arm, lr, seed, steps, fingerprint: which run. budget, beam, tests (files by name): what values
depend on besides. values, left_out, n_lines: by column. valid_loss, parameters, tokens,
core_seconds: what it took. gradients: norms by layer, if they are measured. failed: why there are
no values."""
NEEDED: dict[str, tuple[type, ...]] = {
    "arm": (str,),
    "lr": (float, int, NoneType),
    "seed": (int,),
    "steps": (int,),
    "fingerprint": (str,),
    "values": (dict,),
    "parameters": (int,),
    "tokens": (int, NoneType),
}


def read_lines(path: Path) -> list[ResultLine]:
    """Every whole line. The last may be a part, if its writing was interrupted."""
    if not path.exists():
        return []
    refuse_link(path)
    found: list[ResultLine] = []
    for number, text in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        try:
            line = json.loads(text)
        except ValueError:
            line = None
        if not _is_result(line):
            raise DataError(f"{path}, line {number} is not a result; remove that line")
        found.append(line)
    return found


def _is_result(line: Any) -> TypeGuard[ResultLine]:
    return (
        isinstance(line, dict)
        and NEEDED.keys() <= line.keys()
        and all(type(line[name]) in types for name, types in NEEDED.items())
        and all(type(value) in (float, int) for value in line["values"].values())
    )


def add_line(path: Path, line: ResultLine) -> None:
    """Appends a line and brings it to the disk. What an interrupted writing left is removed."""
    whole = path.read_bytes() if path.exists() else b""
    descriptor = open_plain(path, os.O_RDWR | os.O_CREAT)
    with os.fdopen(descriptor, "r+b") as file:
        file.truncate(whole.rfind(b"\n") + 1)
        file.seek(0, os.SEEK_END)
        file.write(as_text(line).encode())
        file.flush()
        os.fsync(file.fileno())
    sync(path.parent)


def as_text(line: ResultLine) -> str:
    """A line of the file."""
    return json.dumps(line, ensure_ascii=False) + "\n"


def lines_of(plan: StudyPlan, lines: Iterable[ResultLine]) -> dict[tuple[str, int], ResultLine]:
    """The lines that are results of the study as it is now, by the key of their arm and their seed.
    Results of an arm, a budget, a beam or a test set that was changed since are left out."""
    arms = {(arm.name, arm.lr): arm for arm in plan.arms}
    found: dict[tuple[str, int], ResultLine] = {}
    for line in lines:
        arm = arms.get((line["arm"], line["lr"]))
        if arm is None or line["seed"] not in plan.seeds or not _same_conditions(plan, line):
            continue
        if arm.fingerprint(arm.trial(line["seed"], line["steps"])) == line["fingerprint"]:
            found[arm.key, line["seed"]] = line
    return found


def _same_conditions(plan: StudyPlan, line: ResultLine) -> bool:
    known = line.get("tests", {})
    return all(line.get(name) == value for name, value in plan.conditions.items()) and all(
        known.get(test.name) in (None, test.files) for test in plan.tests
    )


def is_complete(plan: StudyPlan, line: ResultLine) -> bool:
    """Whether the line has every measure that the study asks for."""
    return bool(line.get("failed")) or all(column in line["values"] for column in plan.columns)
