"""What an examination found, as data. `terminal` and `page` show it."""

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from .findings import Finding, Outcome, Severity
from .texts import Language, explain


@dataclass(frozen=True)
class Examination:
    """The result of an examination: findings, and the outcome of each check."""

    subject: str
    n_parameters: int
    recognised: dict[str, str]
    findings: tuple[Finding, ...]
    outcomes: tuple[Outcome, ...]
    seed: int
    n_printed: int = 0
    """How many lines the model's own code printed, which are left out."""

    @property
    def healthy(self) -> bool:
        """Every check ran, and nothing worse than a note was found."""
        return not self.fails(strict=True)

    @property
    def headlines(self) -> list[Finding]:
        """One for each cause; what follows from it is left out."""
        return [finding for finding in self.findings if finding.because is None]

    @property
    def not_run(self) -> list[Outcome]:
        """Checks that could not run, which neither passed nor found anything."""
        return [outcome for outcome in self.outcomes if outcome.status == "could not run"]

    def following(self, headline: Finding) -> list[Finding]:
        """What probably follows from it."""
        return [finding for finding in self.findings if finding.because == headline.case]

    def fails(self, on: Severity = "warning", *, strict: bool = False) -> bool:
        """Whether there is a finding of this severity or a worse one; with `strict`, also whether
        a check could not run."""
        levels = ("error", "warning", "note")
        levels = levels[: levels.index(on) + 1]
        return any(f.severity in levels for f in self.findings) or (strict and bool(self.not_run))

    def exit_code(self, on: Severity = "warning", *, strict: bool = False) -> int:
        """That of the command: 1 for a finding of this severity or a worse one; else 3 if a check
        could not run, which with `strict` is 1 too; else 0."""
        if self.fails(on, strict=strict):
            return 1
        return 3 if self.not_run else 0

    def found(self, check: str) -> list[Finding]:
        """The findings of one check."""
        return [finding for finding in self.findings if finding.check == check]

    def to_json(self, language: Language = "en") -> str:
        """Facts and sentences; the facts are the same in every language."""
        findings = [
            {**asdict(finding), "check": finding.check, **asdict(explain(finding, language))}
            for finding in self.findings
        ]
        content = {
            "subject": self.subject,
            "n_parameters": self.n_parameters,
            "healthy": self.healthy,
            "could_not_run": [outcome.check for outcome in self.not_run],
            "seed": self.seed,
            "printed_lines": self.n_printed,
            "recognised": self.recognised,
            "findings": findings,
            "checks": [asdict(outcome) for outcome in self.outcomes],
        }
        return json.dumps(_finite(content), ensure_ascii=False, indent=2, allow_nan=False)

    def __str__(self) -> str:
        try:
            from .terminal import as_text
        except ImportError:  # rich is not installed
            from .plain import as_plain as as_text
        return as_text(self)

    def _repr_html_(self) -> str:
        """In a notebook."""
        from .page import as_fragment

        return as_fragment(self)


def _finite(value: Any) -> Any:
    """NaN and infinity are no JSON: they become their names."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
