"""The result of an examination, which shows itself: as text, as JSON, and in a notebook."""

from dataclasses import asdict

from .facts import ExaminationFacts, json_text
from .texts import Language, explain


class Examination(ExaminationFacts):
    """The result of an examination: findings, and the outcome of each check."""

    def to_json(self, language: Language = "en") -> str:
        """Return the facts and the sentences; the facts are the same in every language."""
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
        return json_text(content)

    def __str__(self) -> str:
        try:
            from .terminal import as_text
        except ImportError:  # rich is not installed
            from .plain import as_plain as as_text
        return as_text(self)

    def _repr_html_(self) -> str:
        """Return the report for a notebook."""
        from .page import as_fragment

        return as_fragment(self)
