"""Writes a report in plain lines, if rich is not installed."""

import re
from collections.abc import Iterator
from textwrap import indent

from .facts import ExaminationFacts
from .findings import Finding
from .texts import (
    Language,
    ability_name,
    explain,
    listed,
    place_name,
    stopped,
    summary,
    word,
)

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters (C0, DEL and C1) except the tab and the line feed."""
_STATUSES = ("passed", "found", "not applicable", "could not run")


def as_plain(
    report: ExaminationFacts,
    language: Language = "en",
    *,
    notes: bool = False,
    checks: bool = False,
) -> str:
    """Return what `terminal` shows, without boxes and colours. A note takes one line, unless
    `notes` are wanted; with `checks`, the checks are listed by how they ended."""
    return "\n".join(_lines(report, language, notes, checks))


def _lines(
    report: ExaminationFacts, language: Language, notes: bool, checks: bool
) -> Iterator[str]:
    size = word("parameters", language).format(n=report.n_parameters)
    yield f"{word('examination', language).format(subject=report.subject)}  {size}"
    for ability, how in report.recognised.items():
        yield f"{ability_name(ability, language)}: {how}"
    yield ""
    for finding in report.headlines:
        if finding.severity != "note" or notes:
            yield from _finding(finding, report, language)
            yield ""
    for finding in report.headlines:
        if finding.severity == "note" and not notes:
            seen = " ".join(explain(finding, language).seen.split())
            yield f"{word('note', language)}  {finding.case}  {seen}"
    for status in _STATUSES if checks else ():
        names = [outcome.check for outcome in report.outcomes if outcome.status == status]
        if names:
            label = word(status.replace(" ", "_"), language)
            yield f"{label} {len(names)}: {listed(names, language)}"
    if report.n_printed:
        yield word("printed", language).format(n=report.n_printed)
    yield from (stopped(outcome, language) for outcome in report.not_run)
    yield summary(report.findings, report.outcomes, language)


def _finding(finding: Finding, report: ExaminationFacts, language: Language) -> Iterator[str]:
    words = explain(finding, language)
    yield f"{word(finding.severity, language)}  {words.title}  [{finding.case}]"
    yield f"  {words.seen}"
    if finding.place is not None:
        yield f"  {word('place', language)}: {place_name(finding.place, language)}"
    yield f"  {word('why', language)}: {words.why}"
    yield f"  {word('cause', language)}: {words.cause}"
    yield f"  {word('repeat', language)}: --only {finding.check} --seed {report.seed}"
    for other in report.following(finding):
        title = explain(other, language).title
        yield f"  {word('follows', language)}: {other.case}  {title}"
    for sign, key, code in (("✗", "wrong", words.wrong), ("✓", "right", words.right)):
        yield f"  {sign} {word(key, language)}"
        yield indent(code, "      ")


def visible(text: str) -> str:
    """Replace control characters by escapes, as in JSON. They could move the cursor of a terminal,
    or hide the text after them."""
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
