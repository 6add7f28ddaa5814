"""Shows a report in the terminal."""

from io import StringIO

from rich import box
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from .facts import ExaminationFacts
from .findings import Cell, Finding
from .texts import (
    Language,
    ability_name,
    explain,
    listed,
    place_name,
    stopped,
    summary,
    verdict,
    word,
)

_COLOURS = {"error": "red", "warning": "yellow", "note": "blue"}
_STATUS = {
    "passed": ("✓", "green"),
    "found": ("✗", "red"),
    "not applicable": ("–", "bright_black"),
    "could not run": ("?", "magenta"),
}
# So many checks are listed each with its reason and its time.
_FEW = 8
_CELLS: dict[Cell, tuple[str, str]] = {
    "sees": ("█", "green"),
    "blind": ("·", "bright_black"),
    "leaks": ("✗", "bold red"),
}


def as_renderable(
    report: ExaminationFacts, language: Language = "en", *, notes: bool = False, checks: bool = True
) -> RenderableType:
    """Return what rich can print: a heading, the findings, and the checks by how they ended. A note
    takes one line; with `notes`, it is explained like a finding, and each of many checks has its
    own line."""
    parts: list[RenderableType] = [_heading(report, language)]
    brief = [f for f in report.headlines if f.severity == "note" and not notes]
    shown = [f for f in report.headlines if f not in brief]
    parts += [_finding(finding, report, language) for finding in shown]
    parts += [_note(finding, language) for finding in brief]
    if checks:
        in_full = notes or len(report.outcomes) <= _FEW
        parts.append(_checks(report, language) if in_full else _names(report, language))
    if report.n_printed:
        text = word("printed", language).format(n=report.n_printed)
        parts.append(Text(text, style="bright_black"))
    colour = "green" if report.healthy else "red"
    parts += [Text(stopped(outcome, language), style="magenta") for outcome in report.not_run]
    last_line = summary(report.findings, report.outcomes, language)
    parts.append(Text(last_line, style=f"bold {colour}"))
    return Group(*parts)


def as_text(
    report: ExaminationFacts, language: Language = "en", *, width: int = 100, notes: bool = False
) -> str:
    """Return the same without colour, for log files and failing tests: only the findings."""
    console = Console(file=StringIO(), width=width, no_color=True, highlight=False)
    console.print(as_renderable(report, language, notes=notes, checks=False))
    assert isinstance(console.file, StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def _note(finding: Finding, language: Language) -> Text:
    """Return a note as one line, whatever its text is."""
    seen = " ".join(explain(finding, language).seen.split())
    return Text.assemble(
        (word("note", language), f"bold {_COLOURS['note']}"),
        "  ",
        (finding.case, "bright_black"),
        "  ",
        seen,
        no_wrap=True,
        overflow="ellipsis",
    )


def _names(report: ExaminationFacts, language: Language) -> RenderableType:
    """Return the names of the checks, grouped by how they ended."""
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for status, (sign, colour) in _STATUS.items():
        names = [outcome.check for outcome in report.outcomes if outcome.status == status]
        if names:
            label = f"{sign} {word(status.replace(' ', '_'), language)} {len(names)}"
            style = "bright_black" if status == "not applicable" else colour
            table.add_row(Text(label, style=style), Text(listed(names, language), "bright_black"))
    return Group(Text(""), table, Text(""))


def _heading(report: ExaminationFacts, language: Language) -> RenderableType:
    title = word("examination", language).format(subject=report.subject)
    size = word("parameters", language).format(n=report.n_parameters)
    table = Table.grid(padding=(0, 2))
    for ability, how in report.recognised.items():
        table.add_row(Text(ability_name(ability, language), style="bright_black"), Text(how))
    heading = Text.assemble((title, "bold"), ("  " + size, "bright_black"))
    return Group(heading, table, Text(""))


def _finding(finding: Finding, report: ExaminationFacts, language: Language) -> RenderableType:
    words = explain(finding, language)
    colour = _COLOURS[finding.severity]
    parts: list[RenderableType] = [Text(words.seen)]
    if finding.picture is not None:
        parts += [
            Text(""),
            _picture(finding.picture),
            Text(word("picture", language), "bright_black"),
        ]
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bright_black", no_wrap=True)
    facts.add_column(overflow="fold")
    if finding.place is not None:
        facts.add_row(word("place", language), Text(place_name(finding.place, language), "bold"))
    facts.add_row(word("why", language), words.why)
    facts.add_row(word("cause", language), words.cause)
    facts.add_row(word("repeat", language), f"--only {finding.check} --seed {report.seed}")
    for other in report.following(finding):
        facts.add_row(word("follows", language), _line(other, language))
    parts += [Text(""), facts, Text(""), _pair(words.wrong, words.right, language)]
    title = Text.assemble(
        (word(finding.severity, language), f"bold {colour}"), "  ", (words.title, "bold")
    )
    return Panel(
        Group(*parts),
        title=title,
        title_align="left",
        subtitle=Text(finding.case, style="bright_black"),
        subtitle_align="right",
        border_style=colour,
        box=box.ROUNDED,
    )


def _line(finding: Finding, language: Language) -> Text:
    words = explain(finding, language)
    return Text.assemble((finding.case, "bright_black"), "  ", words.title)


def _pair(wrong: str, right: str, language: Language) -> RenderableType:
    table = Table(box=None, padding=(0, 1), show_header=False, expand=True)
    table.add_column(width=1)
    table.add_column(ratio=1)
    for sign, colour, key, code in (("✗", "red", "wrong", wrong), ("✓", "green", "right", right)):
        syntax = Syntax(code, "python", theme="ansi_dark", background_color="default")
        table.add_row(Text(sign, style=colour), Text(word(key, language), style=colour))
        table.add_row("", syntax)
    return table


def _picture(picture: list[list[Cell]]) -> Text:
    text = Text()
    for row in picture:
        for cell in row:
            sign, style = _CELLS[cell]
            text.append(sign + " ", style=style)
        text.append("\n")
    text.right_crop()
    return text


def _checks(report: ExaminationFacts, language: Language) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=word("checks", language), title_justify="left")
    table.add_column("")
    table.add_column(word("check", language), no_wrap=True)
    table.add_column(word("result", language), ratio=1)
    table.add_column(word("seconds", language), justify="right")
    for outcome in report.outcomes:
        sign, colour = _STATUS[outcome.status]
        style = "bright_black" if outcome.status == "not applicable" else ""
        table.add_row(
            Text(sign, style=colour),
            Text(outcome.check, style=style),
            Text(verdict(outcome, language), style=style or colour),
            Text(f"{outcome.seconds:.2f}", style="bright_black"),
        )
    return table
