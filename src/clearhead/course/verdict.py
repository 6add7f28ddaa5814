"""The verdict on an exercise. This file does not import torch, so that `clearhead learn` answers at
once."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Trouble = Literal["blank", "syntax", "error", "result", "time", "missing", "crash"]


@dataclass
class Verdict:
    """The verdict on an exercise. It travels between processes as JSON."""

    passed: list[str] = field(default_factory=list)
    """Names of the checks that hold."""
    n_checks: int = 0
    failed: str | None = None
    """The first check that does not hold."""
    numbers: dict[str, Any] = field(default_factory=dict)
    mistakes: list[str] = field(default_factory=list)
    """The mistakes that were recognised by name."""
    trouble: Trouble | None = None
    message: str = ""
    line: int | None = None
    """The line of the learner's file where the trouble is."""
    printed: str = ""
    imported: list[str] = field(default_factory=list)
    """What the file takes from the package although the learner should write it."""

    @property
    def complete(self) -> bool:
        """Tell whether every check passes."""
        return self.trouble is None and self.failed is None and len(self.passed) == self.n_checks

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as plain data."""
        return asdict(self)
