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
    """The check and the case, such as `causal.leak`: the key of the texts."""
    severity: Severity
    numbers: Mapping[str, object] = field(default_factory=dict)
    place: str | None = None
    """The path in the module tree to which the defect could be narrowed down."""
    picture: list[list[Cell]] | None = None
    """A table of which position (row) sees which (column)."""
    because: str | None = None
    """The case of another finding that probably explains this one."""
    origin: str | None = None
    """The part of the model to which the defect was traced, if that is known: the key of texts of
    its own."""

    @property
    def check(self) -> str:
        """Return the name of the check that made the finding."""
        return self.case.partition(".")[0]


class NotApplicableError(Exception):
    """Raised by a check that does not apply to a model, with the key of the reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


Status = Literal["passed", "found", "not applicable", "could not run"]


@dataclass(frozen=True)
class Outcome:
    """How one check ended."""

    check: str
    status: Status
    seconds: float
    reason: str | None = None
    """Why the check does not apply (a key of the texts), or the error that stopped it."""
