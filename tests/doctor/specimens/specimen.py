"""One defect, and the same model without it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import nn


@dataclass(frozen=True)
class Specimen:
    name: str
    kind: str
    ill: Callable[[], nn.Module]
    twin: Callable[[], nn.Module]
    case: str
    """What the doctor must call it."""
    place: str | None = None
    """Where the doctor must see it; None: nowhere in particular."""
    errata: int | None = None
    """The number of the defect in the list of what tutorials get wrong."""
    how: dict[str, Any] = field(default_factory=dict)
    """What the user would tell the doctor."""

    @property
    def check(self) -> str:
        return self.case.partition(".")[0]
