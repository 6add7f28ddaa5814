"""The results of an examination, as data. `report` shows them: `terminal`, `plain` and `page` read
them."""

import json
import math
from dataclasses import dataclass
from typing import Any

from .findings import Finding, Outcome, Severity


@dataclass(frozen=True)
class ExaminationFacts:
    """Findings, and the outcome of each check."""

    subject: str
    n_parameters: int
    recognised: dict[str, str]
    findings: tuple[Finding, ...]
    outcomes: tuple[Outcome, ...]
    seed: int
    n_printed: int = 0
    """The number of lines that the model's own code printed, which are left out."""

    @property
    def healthy(self) -> bool:
        """Tell whether every check ran and found nothing worse than a note."""
        return not self.fails(strict=True)

    @property
    def headlines(self) -> list[Finding]:
        """Return one finding for each cause, without its consequences."""
        return [finding for finding in self.findings if finding.because is None]

    @property
    def not_run(self) -> list[Outcome]:
        """Return the checks that could not run, which neither passed nor found anything."""
        return [outcome for outcome in self.outcomes if outcome.status == "could not run"]

    def following(self, headline: Finding) -> list[Finding]:
        """Return what probably follows from a finding."""
        return [finding for finding in self.findings if finding.because == headline.case]

    def fails(self, on: Severity = "warning", *, strict: bool = False) -> bool:
        """Tell whether there is a finding of at least this severity or, with `strict`, a check that
        could not run."""
        levels = ("error", "warning", "note")
        levels = levels[: levels.index(on) + 1]
        return any(f.severity in levels for f in self.findings) or (strict and bool(self.not_run))

    def exit_code(self, on: Severity = "warning", *, strict: bool = False) -> int:
        """Return the exit code of the command: 1 for a finding of at least this severity; otherwise
        3 if a check could not run (1 with `strict`); otherwise 0."""
        if self.fails(on, strict=strict):
            return 1
        return 3 if self.not_run else 0

    def found(self, check: str) -> list[Finding]:
        """Return the findings of one check."""
        return [finding for finding in self.findings if finding.check == check]


def json_text(content: dict[str, Any]) -> str:
    """Return readable JSON. NaN and infinity, which JSON does not have, become their names."""
    return json.dumps(_finite(content), ensure_ascii=False, indent=2, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
