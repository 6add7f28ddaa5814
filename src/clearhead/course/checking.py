"""What an exercise is checked with: properties, and the mistakes that are known by name.

Checks run in order and stop at the first that fails. Then the learner's function is compared with
known wrong ones on random inputs: where both behave alike the mistake has a name, and otherwise
only the property is reported. So an unknown mistake is never given a wrong reason."""

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clearhead.course import BlankError
from clearhead.course.verdict import Verdict

N_PROBES = 3
TOLERANCE = 1e-5


class MissedError(Exception):
    """A property that does not hold, with the numbers that were measured."""

    def __init__(self, **numbers: object) -> None:
        super().__init__()
        self.numbers = numbers


class OutOfTimeError(Exception):
    """The learner's code has taken too long."""


def require(holds: object, **numbers: object) -> None:
    """Raises MissedError, with the numbers, unless the property holds."""
    if not holds:
        raise MissedError(**numbers)


def close(one: Tensor, other: Tensor, tolerance: float = TOLERANCE) -> bool:
    """Equal shapes, and equal numbers but for rounding."""
    return one.shape == other.shape and torch.allclose(
        one.double(), other.double(), atol=tolerance, rtol=tolerance
    )


Learned = Mapping[str, Any]
"""The functions and classes of a learner's file, by name."""


@dataclass(frozen=True)
class ExerciseCheck:
    """One property. Its name is the key of its texts; `function` is what it is about."""

    name: str
    function: str
    run: Callable[[Any], None]


class Checks:
    """The checks of one exercise in their order, collected by the decorator `about`."""

    def __init__(self) -> None:
        self.all: list[ExerciseCheck] = []

    def about(self, function: str) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
        """Marks a check of this function of the exercise."""

        def collect(run: Callable[[Any], None]) -> Callable[[Any], None]:
            self.all.append(ExerciseCheck(run.__name__, function, run))
            return run

        return collect


@dataclass(frozen=True)
class Mistake:
    """A wrong answer that is known by name: what `function` would be. `name` is the key of its
    texts."""

    name: str
    function: str
    wrong: Any


FunctionProbe = Callable[[Any], object]
"""Calls a function or a class of the exercise on random inputs and returns what it gave."""


def examine_answer(
    checks: list[ExerciseCheck],
    mistakes: list[Mistake],
    probes: Mapping[str, FunctionProbe],
    learned: Learned,
    file: str,
) -> Verdict:
    """Runs the checks on a learner's functions. `file` is where they come from: a trouble is
    reported with its line there."""
    verdict = Verdict(n_checks=len(checks))
    for check in checks:
        verdict.failed = check.name
        if check.function not in learned:
            verdict.trouble, verdict.message = "missing", check.function
            return verdict
        torch.manual_seed(1)
        try:
            check.run(learned)
        except MissedError as missed:
            verdict.numbers = {key: str(value) for key, value in missed.numbers.items()}
        except BlankError as error:
            verdict.trouble, verdict.line = "blank", line_in(error, file)
            return verdict
        except OutOfTimeError as error:
            verdict.trouble, verdict.line = "time", line_in(error, file)
            return verdict
        except (Exception, SystemExit) as error:
            verdict.line = line_in(error, file)
            verdict.trouble = "result" if verdict.line is None else "error"
            verdict.message = describe(error)
        else:
            verdict.passed.append(check.name)
            continue
        verdict.mistake = recognise(check.function, mistakes, probes, learned)
        return verdict
    verdict.failed = None
    return verdict


def recognise(
    function: str, mistakes: list[Mistake], probes: Mapping[str, FunctionProbe], learned: Learned
) -> str | None:
    """The mistake that behaves as the learner's function does, on every probe."""
    found = [behaviour(probes[function], learned[function], seed) for seed in range(N_PROBES)]
    for mistake in mistakes:
        if mistake.function == function and all(
            same(behaviour(probes[function], mistake.wrong, seed), found[seed])
            for seed in range(N_PROBES)
        ):
            return mistake.name
    return None


def behaviour(probe: FunctionProbe, function: Any, seed: int) -> object:
    """What a function returns, or the error that it raises, on the inputs of this seed."""
    torch.manual_seed(100 + seed)
    try:
        return probe(function)
    except OutOfTimeError:
        raise
    except (Exception, SystemExit) as error:
        return describe(error)


def same(one: object, other: object) -> bool:
    """Equal results: tensors but for rounding, NaN equal to NaN, and errors by their message."""
    match one, other:
        case Tensor(), Tensor():
            return one.shape == other.shape and torch.allclose(
                one.double(), other.double(), atol=TOLERANCE, rtol=TOLERANCE, equal_nan=True
            )
        case ((list() | tuple()), (list() | tuple())):
            return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other))
    return type(one) is type(other) and one == other


def describe(error: BaseException) -> str:
    """The kind of an error, and the first line of its message."""
    text = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def line_in(error: BaseException, file: str) -> int | None:
    """The last line of this file that the error passed through."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    return lines[-1] if lines else None
