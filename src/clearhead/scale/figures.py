"""A number of a plan, and where it comes from."""

from dataclasses import dataclass
from typing import Literal

from clearhead.errors import Message

Origin = Literal["measured", "computed", "assumed"]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure and its origin. A `measured` figure was read off a run (of clearhead or a published
    one), a `computed` figure follows from the model and the layout, and an `assumed` figure is a
    guess that an option can replace. A figure that is computed from an assumption is an
    assumption."""

    value: float
    unit: str
    origin: Origin
    why: str
    """The source, the formula, or the option that replaces it."""


def measured(value: float, unit: str, why: str) -> Figure:
    """Make a figure that was read off a run."""
    return Figure(value=value, unit=unit, origin="measured", why=Message(why))


def computed(value: float, unit: str, why: str, *inputs: Figure) -> Figure:
    """Make a figure that is computed from the inputs; it is assumed if one of them is."""
    guessed = any(figure.origin == "assumed" for figure in inputs)
    return Figure(
        value=value, unit=unit, origin="assumed" if guessed else "computed", why=Message(why)
    )


def assumed(value: float, unit: str, why: str) -> Figure:
    """Make a figure that is a guess."""
    return Figure(value=value, unit=unit, origin="assumed", why=Message(why))
