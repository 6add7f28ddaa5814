"""Checks of exercise 5. The input is not random: the table depends on two numbers only."""

import torch

from clearhead.course.checking import (
    Checks,
    FunctionProbe,
    Learned,
    MissedError,
    close,
    distance,
    require,
)
from clearhead.course.exercises.sinusoid import solution

CHECKS = Checks()
PROBES: dict[str, FunctionProbe] = {"sinusoid": lambda f: [f(9, 8), f(5, 12), f(3, 6)]}


@CHECKS.about("sinusoid")
def shape(it: Learned) -> None:
    """The table has the shape (position, d_model)."""
    found = it["sinusoid"](40, 8)
    require(found.shape == (40, 8), found=tuple(found.shape))


@CHECKS.about("sinusoid")
def row_0(it: Learned) -> None:
    """At position 0, all hands stand at angle 0."""
    row = it["sinusoid"](40, 8)[0]
    require(
        close(row.float(), torch.tensor([0.0, 1.0]).repeat(4)),
        row=" ".join(f"{x:.2f}".removesuffix(".00") for x in row.tolist()),
    )


@CHECKS.about("sinusoid")
def unit_circle(it: Learned) -> None:
    """In every pair, sin² + cos² = 1."""
    table = it["sinusoid"](40, 8)
    radius = table[:, 0::2].square() + table[:, 1::2].square()
    far = (radius - 1).abs().max()
    require(far < 1e-4, least=f"{radius.min():.2f}", most=f"{radius.max():.2f}")


@CHECKS.about("sinusoid")
def products(it: Learned) -> None:
    """The product of two rows depends only on their distance."""
    table = it["sinusoid"](40, 8)
    at_distance_3 = (table @ table.T).diagonal(3)
    spread = at_distance_3.max() - at_distance_3.min()
    require(spread < 1e-4, spread=f"{spread:.2f}")


@CHECKS.about("sinusoid")
def speeds(it: Learned) -> None:
    """The first hand turns by 1 radian per token; the speeds of neighbouring hands differ by the
    factor 10000^(2/d)."""
    row = it["sinusoid"](40, 8)[1]
    angle = torch.atan2(row[0::2], row[1::2])
    ratios = angle[:-1] / angle[1:]
    holds = (angle[0] - 1).abs() < 1e-4 and bool(((ratios - 10).abs() < 0.1).all())
    require(holds, first=f"{angle[0]:.2f}", ratio=", ".join(f"{r:.2f}" for r in ratios.tolist()))


@CHECKS.about("sinusoid")
def any_size(it: Learned) -> None:
    """The formula holds for other numbers of positions and features."""
    for n_positions, d_model in ((1, 2), (7, 6), (100, 64), (512, 10), (9, 6), (3, 10), (6000, 4)):
        found = it["sinusoid"](n_positions, d_model)
        change = distance(found, solution.sinusoid(n_positions, d_model))
        near = 1e-3 if n_positions < 1000 else 1e-2  # single precision, and large angles
        size, rows = f"{n_positions}, {d_model}", tuple(found.shape)
        require(change < near, size=size, found=rows, change=f"{change:.2g}")


@CHECKS.about("sinusoid")
def a_table_of_its_own(it: Learned) -> None:
    """Each call returns a table of its own, to which the caller may add in place."""
    it["sinusoid"](9, 8).add_(1.0)
    change = distance(it["sinusoid"](9, 8), solution.sinusoid(9, 8))
    require(change < 1e-3, change=f"{change:.2g}")


@CHECKS.about("sinusoid")
def odd_width(it: Learned) -> None:
    """An odd width raises a ValueError."""
    for width in (7, 1, 3):
        try:
            it["sinusoid"](4, width)
        except ValueError:
            continue
        except Exception as error:
            raise MissedError(found=type(error).__name__, width=width) from None
        raise MissedError(found="–", width=width)
