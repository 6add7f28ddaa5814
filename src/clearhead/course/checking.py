"""Checks an exercise by its properties and by known mistakes.

Checks run in order and stop at the first that fails. Then the learner's function is compared with
known wrong ones on random inputs, and with two mistakes at once if no single one fits. If both
behave alike, the mistake has a name; otherwise, only the property is reported. An unknown mistake
thus never gets a wrong reason."""

import math
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import torch
from torch import Tensor

from clearhead.course import BlankError
from clearhead.course.verdict import Verdict
from clearhead.doctor.user_files import first_line

N_PROBES = 3
TOLERANCE = 1e-5


class MissedError(Exception):
    """Raised if a property does not hold, with the numbers that were measured."""

    def __init__(self, **numbers: object) -> None:
        super().__init__()
        self.numbers = numbers


class OutOfTimeError(Exception):
    """Raised if the learner's code takes too long."""


def require(holds: object, **numbers: object) -> None:
    """Raises MissedError, with the numbers, unless the property holds."""
    if not holds:
        raise MissedError(**numbers)


def close(one: Tensor, other: Tensor, tolerance: float = TOLERANCE) -> bool:
    """Tell whether shapes are equal, and numbers are equal apart from rounding."""
    return one.shape == other.shape and torch.allclose(
        one.double(), other.double(), atol=tolerance, rtol=tolerance
    )


def distance(one: Tensor, other: Tensor) -> float:
    """Return the largest difference; infinite if the shapes differ or a number is NaN."""
    if one.shape != other.shape:
        return math.inf
    found = (one.detach().double() - other.detach().double()).abs().max().item()
    return math.inf if math.isnan(found) else found


def gradients(
    function: Callable[..., Any], *inputs: Tensor, parameters: Sequence[Tensor] = ()
) -> list[Tensor]:
    """Return the gradients of a random sum over the outputs with respect to each input and
    parameter, or zeros where there is no gradient. The function gets copies, which it may change in
    place."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    output = function(*(leaf * 1 for leaf in leaves))
    leaves += parameters
    if not output.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves]
    shares = torch.randn(output.shape, generator=torch.Generator().manual_seed(7))
    found = torch.autograd.grad((output * shares.to(output)).sum(), leaves, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found)]


def gradient_distance(
    function: Callable[..., Any],
    reference: Callable[..., Any],
    *inputs: Tensor,
    parameters: Sequence[Tensor] = (),
) -> float:
    """Return the distance between the gradients and those of the reference."""
    found, wanted = (gradients(f, *inputs, parameters=parameters) for f in (function, reference))
    return max(map(distance, found, wanted))


def scattered(x: Tensor) -> Tensor:
    """Return the same numbers in another memory order, as a transpose or a slice leaves them."""
    return x.transpose(0, -1).contiguous().transpose(0, -1)


def require_unchanged(function: Callable[..., Any], *inputs: Tensor) -> None:
    """Raises if the function has changed its inputs, which the caller still needs."""
    before = [x.clone() for x in inputs]
    function(*inputs)
    require(all(torch.equal(x, y) for x, y in zip(inputs, before)))


Learned = Mapping[str, Any]
"""The functions and classes of a learner's file, by name."""


@dataclass(frozen=True)
class ExerciseCheck:
    """One property to check. `name` is the key of its texts; `function` names the part of the
    exercise that it is about."""

    name: str
    function: str
    run: Callable[[Any], None]


class Checks:
    """The checks of one exercise in their order, collected by the decorator `about`."""

    def __init__(self) -> None:
        self.all: list[ExerciseCheck] = []

    def about(self, function: str) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
        """Mark a check of this function of the exercise."""

        def collect(run: Callable[[Any], None]) -> Callable[[Any], None]:
            self.all.append(ExerciseCheck(run.__name__, function, run))
            return run

        return collect


FunctionProbe = Callable[[Any], object]
"""Calls a function or a class of the exercise on random inputs and returns what it gave."""


@dataclass(frozen=True)
class Mistake:
    """A wrong answer that is known by name: what `function` would be. `name` is the key of its
    texts, and `second` is the key of another mistake in the same answer."""

    name: str
    function: str
    wrong: Any
    second: str = ""
    probe: FunctionProbe | None = None
    """The inputs on which the mistake shows, if the function is right on the usual ones: large
    numbers, gradients."""
    fits: Callable[[Any], bool] | None = None
    """True if a function makes this mistake, if `wrong` is only one example of it."""

    @property
    def names(self) -> list[str]:
        """The names of the mistake: one, or two."""
        return [self.name, self.second] if self.second else [self.name]


def combined(
    function: str, build: Callable[..., Any], kinds: Mapping[str, Mapping[str, Any]]
) -> list[Mistake]:
    """Return all answers with one wrong choice, or with two of different kinds. `build` takes the
    wrong choices, each by the name of its kind, and is right in everything else."""
    single = [
        Mistake(name, function, build(**{kind: choice}))
        for kind, choices in kinds.items()
        for name, choice in choices.items()
    ]
    double = [
        Mistake(one[0], function, build(**{first: one[1], second: two[1]}), second=two[0])
        for first, second in combinations(kinds, 2)
        for one, two in product(kinds[first].items(), kinds[second].items())
    ]
    return single + double


def examine_answer(
    checks: list[ExerciseCheck],
    mistakes: list[Mistake],
    probes: Mapping[str, FunctionProbe],
    learned: Learned,
    file: str,
) -> Verdict:
    """Run the checks on a learner's functions. `file` is the file of these functions, in which
    errors are reported with their lines."""
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
            verdict.message = first_line(error)
        else:
            verdict.passed.append(check.name)
            continue
        verdict.mistakes = recognise(check.function, mistakes, probes, learned)
        return verdict
    verdict.failed = None
    return verdict


def recognise(
    function: str, mistakes: list[Mistake], probes: Mapping[str, FunctionProbe], learned: Learned
) -> list[str]:
    """Return the mistake that behaves like the learner's function on every probe, or two mistakes
    if both are needed, or none if it is not known."""
    usual, answer = probes[function], learned[function]
    found: dict[FunctionProbe, list[object]] = {}

    def fits(mistake: Mistake) -> bool:
        if mistake.fits is not None:
            return behaviour(mistake.fits, answer, 0) is True
        return all(alike(mistake, probe) for probe in (usual, mistake.probe) if probe is not None)

    def alike(mistake: Mistake, probe: FunctionProbe) -> bool:
        if probe not in found:
            found[probe] = [behaviour(probe, answer, seed) for seed in range(N_PROBES)]
        return all(
            same(behaviour(probe, mistake.wrong, seed), found[probe][seed])
            for seed in range(N_PROBES)
        )

    about = [mistake for mistake in mistakes if mistake.function == function]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the wrong answers, which are not the learner's
        one_first = sorted(about, key=lambda mistake: len(mistake.names))
        return next((mistake.names for mistake in one_first if fits(mistake)), [])


def behaviour(probe: FunctionProbe, function: Any, seed: int) -> object:
    """Return the result of a function, or the error that it raises, on the inputs of this seed."""
    torch.manual_seed(100 + seed)
    try:
        return probe(function)
    except OutOfTimeError:
        raise
    except (Exception, SystemExit) as error:
        return first_line(error)


def same(one: object, other: object) -> bool:
    """Tell whether results are equal. Tensors may differ by rounding, NaN equals NaN, and errors
    are compared by their message."""
    match one, other:
        case Tensor(), Tensor():
            return one.shape == other.shape and torch.allclose(
                one.double(), other.double(), atol=TOLERANCE, rtol=TOLERANCE, equal_nan=True
            )
        case ((list() | tuple()), (list() | tuple())):
            return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other))
    return type(one) is type(other) and one == other


def line_in(error: BaseException, file: str) -> int | None:
    """Return the last line of this file through which the error passed."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    return lines[-1] if lines else None
