"""What an examination found, as data. `terminal` and `page` show it."""

import json
from dataclasses import asdict, dataclass

from clearhead.doctor.findings import Finding, Outcome
from clearhead.doctor.texts import Language, explain


@dataclass(frozen=True)
class Report:
    subject: str
    n_parameters: int
    recognised: dict[str, str]
    findings: tuple[Finding, ...]
    outcomes: tuple[Outcome, ...]
    seed: int

    @property
    def healthy(self) -> bool:
        """Notes are worth knowing, and no illness."""
        return all(finding.severity == "note" for finding in self.findings)

    def found(self, check: str) -> list[Finding]:
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
            "seed": self.seed,
            "recognised": self.recognised,
            "findings": findings,
            "checks": [asdict(outcome) for outcome in self.outcomes],
        }
        return json.dumps(content, ensure_ascii=False, indent=2)

    def __str__(self) -> str:
        from clearhead.doctor.terminal import as_text

        return as_text(self)
