"""The result file of a study: one JSON line for each finished run. It may come from somebody
else."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeGuard

from clearhead.config.checks import MOST
from clearhead.errors import DataError
from clearhead.files import open_plain, sync
from clearhead.interop.folders import has_file, read_bytes
from clearhead.studies.statistics import N_BLOCKS
from clearhead.studies.study_file import GRADIENTS, StudyPlan, is_possible

RESULTS = "results.jsonl"
LARGEST = 1e50
"""The largest figure that is allowed: intervals need its fourth power."""
ROUNDED = 1e-9
"""The share by which a figure may be above its highest value: sacrebleu gives
100.00000000000004."""
MOST_LINES = 10**9
"""The highest number of lines that a test set may have."""
ResultLine = dict[str, Any]
"""arm, lr, seed, steps, fingerprint: which run. budget, beam, tests (files by name): what else
values depend on. values, left_out, n_lines: by column. valid_loss, parameters, tokens,
core_seconds: what it took. gradients: norms by layer, if they are measured. failed: why there are
no values."""


def read_lines(path: Path) -> list[ResultLine]:
    """Read every complete line. The last line may be incomplete, if writing it was interrupted."""
    lines: list[ResultLine] = []
    for number, text in enumerate(_content(path).split(b"\n")[:-1], 1):
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            line = None
        if not is_result(line):
            raise DataError(f"{path}, line {number} is not a result; remove that line")
        lines.append(line)
    return lines


def _content(path: Path) -> bytes:
    return read_bytes(path.parent, path.name) if has_file(path.parent, path.name) else b""


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < MOST


def _is_number(value: Any) -> bool:
    return type(value) in (float, int) and 0 <= value <= LARGEST


def is_figure(column: str, value: Any) -> bool:
    """Tell whether a value is a measure's value, for which intervals can be computed."""
    return _is_number(value) and is_possible(column, value * (1 - ROUNDED))


def _may_be_none(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or check(value)


def _holds(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """An object whose values pass the check."""
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def _are_values(value: Any) -> bool:
    return isinstance(value, dict) and all(is_figure(*item) for item in value.items())


def _are_blocks(numbers: Any) -> bool:
    return isinstance(numbers, list) and len(numbers) == N_BLOCKS and all(map(_is_number, numbers))


def _are_norms(numbers: Any) -> bool:
    """Tell whether numbers are norms. Norms may be much smaller and larger than other figures,
    because only their logarithms are used."""
    return isinstance(numbers, list) and all(
        type(number) in (float, int) and 0 <= number <= sys.float_info.max for number in numbers
    )


def _are_gradients(value: Any) -> bool:
    """Tell whether these are norms by time and by stack, as many both times."""
    if not _holds(_holds(_are_norms))(value) or value.keys() != set(GRADIENTS):
        return False
    first, last = (
        {stack: len(norms) for stack, norms in value[when].items()} for when in GRADIENTS
    )
    return first == last and first.keys() <= {"encoder", "decoder"}


NEEDED: Mapping[str, Callable[[Any], bool]] = {
    "arm": _is_text,
    "lr": _may_be_none(_is_number),
    "seed": lambda value: type(value) is int,
    "steps": lambda value: _is_count(value) and value > 0,
    "fingerprint": _is_text,
    "values": _are_values,
    "parameters": _is_count,
    "tokens": _may_be_none(_is_count),
}
"""What every line has, and what it must be."""
POSSIBLE: Mapping[str, Callable[[Any], bool]] = {
    "left_out": _holds(_are_blocks),
    "n_lines": _holds(lambda value: _is_count(value) and 0 < value <= MOST_LINES),
    "tests": lambda value: isinstance(value, dict),
    "valid_loss": _may_be_none(_is_number),
    "core_seconds": _may_be_none(_is_number),
    "gradients": _are_gradients,
    **dict.fromkeys(("failed", "clearhead", "torch", "processor", "date"), _is_text),
}
"""What else a line may have; keys that are not named here are not read."""


def is_result(line: Any) -> TypeGuard[ResultLine]:
    """Tell whether a value is the result of a run, with numbers that can be compared."""
    return (
        isinstance(line, dict)
        and NEEDED.keys() <= line.keys()
        and all(check(line[key]) for key, check in NEEDED.items())
        and all(check(line[key]) for key, check in POSSIBLE.items() if key in line)
    )


def add_line(path: Path, line: ResultLine) -> None:
    """Append a line and sync it to the disk. What an interrupted write left is removed."""
    whole = _content(path)
    descriptor = open_plain(path, os.O_RDWR | os.O_CREAT)
    with os.fdopen(descriptor, "r+b") as file:
        file.truncate(whole.rfind(b"\n") + 1)
        file.seek(0, os.SEEK_END)
        file.write(as_text(line).encode())
        file.flush()
        os.fsync(file.fileno())
    sync(path.parent)


def as_text(line: ResultLine) -> str:
    """Return a line of the file."""
    return json.dumps(line, ensure_ascii=False) + "\n"


def lines_of(plan: StudyPlan, lines: Iterable[ResultLine]) -> dict[tuple[str, int], ResultLine]:
    """Return the lines that are results of the study as it is now, by the key of their arm and
    their seed. Results of an arm, a budget, a beam or a test set that has changed since are left
    out."""
    arms = {(arm.name, arm.lr): arm for arm in plan.arms}
    by_run: dict[tuple[str, int], ResultLine] = {}
    for line in lines:
        arm = arms.get((line["arm"], line["lr"]))
        if arm is None or line["seed"] not in plan.seeds or not _same_conditions(plan, line):
            continue
        if arm.fingerprint(arm.trial(line["seed"], line["steps"])) == line["fingerprint"]:
            by_run[arm.key, line["seed"]] = line
    return by_run


def _same_conditions(plan: StudyPlan, line: ResultLine) -> bool:
    files_by_test = line.get("tests", {})
    return all(line.get(name) == value for name, value in plan.conditions.items()) and all(
        files_by_test.get(test.name) in (None, test.files) for test in plan.tests
    )


def is_complete(plan: StudyPlan, line: ResultLine) -> bool:
    """Tell whether the line has every measure of the study."""
    return bool(line.get("failed")) or all(column in line["values"] for column in plan.columns)
