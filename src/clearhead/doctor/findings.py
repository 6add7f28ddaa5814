"""The results of a check. A finding holds facts; its sentences are made when a report is
written."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["error", "warning", "note"]
"""error: the model is wrong. warning: it is wrong in a common use. note: worth knowing;
a model with notes is healthy."""

Cell = Literal["sees", "blind", "leaks"]


@dataclass(frozen=True)
class Finding:
    """One defect that a check has found, with its numbers and its place."""

    case: str
    """Check and case, `causal.leak`: the key of its texts."""
    severity: Severity
    numbers: Mapping[str, object] = field(default_factory=dict)
    place: str | None = None
    """The path in the module tree that it could be narrowed down to."""
    picture: list[list[Cell]] | None = None
    """Which position (row) sees which (column)."""
    because: str | None = None
    """The case of another finding that probably explains this one."""
    origin: str | None = None
    """What in the model it was traced to, where that is known: the key of texts of its own."""

    @property
    def check(self) -> str:
        """The name of the check that made the finding."""
        return self.case.partition(".")[0]


class NotApplicableError(Exception):
    """Raised by a check that does not apply to a model, with the key of the reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


Status = Literal["passed", "found", "not applicable", "could not run"]


@dataclass(frozen=True)
class Outcome:
    """The way in which one check ended."""

    check: str
    status: Status
    seconds: float
    reason: str | None = None
    """Why it does not apply (a key of the texts), or the error that stopped it."""
