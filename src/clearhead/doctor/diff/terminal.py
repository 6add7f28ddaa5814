"""Shows a comparison in the terminal."""

from io import StringIO

from rich import box
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ..texts import Language
from .departures import Departure
from .facts import PortFacts
from .operations import SourceLine
from .texts import assumption, cause_text, departure_title, verdict_text, weight_text, word

_MAX_LINES = 6
_MAX_FINDINGS = 12


def as_renderable(report: PortFacts, language: Language = "en") -> RenderableType:
    """Return what rich can print: a heading, weights, departures, and the result."""
    parts: list[RenderableType] = [_heading(report, language)]
    if report.weights.findings:
        parts.append(_weights(report, language))
    parts += [_departure(departure, language) for departure in report.departures]
    parts += [_rounding(departure, language) for departure in report.rounding]
    colour = "green" if report.same else "red"
    parts.append(Text(verdict_text(report, language), style=f"bold {colour}"))
    return Group(*parts)


def as_text(report: PortFacts, language: Language = "en", *, width: int = 100) -> str:
    """Return the same without colour, for log files and failing tests."""
    console = Console(file=StringIO(), width=width, no_color=True, highlight=False)
    console.print(as_renderable(report, language))
    assert isinstance(console.file, StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def _heading(report: PortFacts, language: Language) -> RenderableType:
    title = word("comparison", language).format(port=report.port, reference=report.reference)
    walk = report.walk
    common = word("of", language).format(n=walk.n_common, m=walk.n_operations)
    facts = {
        **assumption(report, language),
        "inputs": report.inputs,
        "weights": word("share", language).format(share=report.weights.share),
        "common": common,
        "logits": f"{walk.difference:.1e}",
    }
    if report.padded is not None:
        facts["padded"] = f"{report.padded.difference:.1e}"
    if report.steps is not None:
        facts["steps"] = report.steps.problem or f"{report.steps.difference:.1e}"
    table = Table.grid(padding=(0, 2))
    for key, text in facts.items():
        table.add_row(Text(word(key, language), style="bright_black"), Text(text))
    return Group(Text(title, style="bold"), table, Text(""))


def _weights(report: PortFacts, language: Language) -> RenderableType:
    findings = report.weights.findings
    lines = [Text(weight_text(finding, language)) for finding in findings[:_MAX_FINDINGS]]
    if len(findings) > _MAX_FINDINGS:
        lines.append(Text(word("more", language).format(n=len(findings) - _MAX_FINDINGS)))
    title = Text(word("weights", language), style="bold yellow")
    return Panel(
        Group(*lines), title=title, title_align="left", border_style="yellow", box=box.ROUNDED
    )


def _departure(departure: Departure, language: Language) -> RenderableType:
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bright_black", no_wrap=True)
    facts.add_column(overflow="fold")
    shapes = f"{departure.shape} · {departure.reference_shape}"
    facts.add_row(word("shape", language), shapes)
    facts.add_row(word("difference", language), f"{departure.difference:.1e}")
    facts.add_row(word("noise", language), f"{departure.noise:.1e}")
    facts.add_row(word("effect", language), f"{departure.effect:.1e}")
    parts: list[RenderableType] = [Text(cause_text(departure, language)), Text("")]
    parts.append(_source(word("port", language), departure.lines, departure.line, "red"))
    parts.append(_source(word("reference", language), departure.reference_lines, None, "green"))
    parts += [Text(""), facts]
    return Panel(
        Group(*parts),
        title=Text(departure_title(departure, language), style="bold red"),
        title_align="left",
        subtitle=Text("" if departure.cause is None else departure.cause.kind, "bright_black"),
        subtitle_align="right",
        border_style="red",
        box=box.ROUNDED,
    )


def _source(
    title: str, lines: tuple[SourceLine, ...], main: SourceLine | None, colour: str
) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    shown = lines if main is None or main in lines else (main, *lines)
    for line in shown[:_MAX_LINES]:
        table.add_row(Text(f"{title} ", colour), Text(str(line), "bright_black"), Text(line.text))
        title = ""
    return table


def _rounding(departure: Departure, language: Language) -> RenderableType:
    where = word("unknown_line", language) if departure.line is None else str(departure.line)
    figures = f"{departure.difference:.1e} ≤ 8 × {departure.noise:.1e}"
    return Text(f"{word('rounding', language)}: {where}  {figures}", style="bright_black")
