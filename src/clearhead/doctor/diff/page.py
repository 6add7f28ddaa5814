"""Writes a comparison as one self-contained HTML page that shows the two sources side by side."""

from html import escape
from linecache import getlines
from pathlib import Path

from ..page import in_frame
from ..texts import Language
from .departures import Departure
from .facts import PortFacts
from .operations import SourceLine
from .texts import assumption, cause_text, departure_title, verdict_text, weight_text, word

_CODES = {"en": "en", "zh": "zh-Hans"}
_AROUND = 4
_STYLE = """
:root { --paper: #fff; --ink: #1c2330; --faint: #667085; --line: #e4e7ec; --soft: #f7f8fa;
  --error: #b42318; --warning: #a15c07; --good: #067647; --mark: #fdecea; --there: #e7f6ec; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #14171f; --ink: #e6e9ef; --faint: #98a2b3; --line: #2b3140; --soft: #1b202b;
    --error: #f97066; --warning: #fdb022; --good: #47cd89; --mark: #45201d; --there: #173a28; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2.5rem 1.25rem 4rem; max-width: 84rem; background: var(--paper);
  color: var(--ink); font: 16px/1.6 system-ui, "PingFang SC", "Microsoft YaHei", sans-serif; }
h1 { font-size: 1.7rem; margin: 0; } h2 { font-size: 1.15rem; margin: 0 0 .6rem; }
dt, .kind, .file { color: var(--faint); }
.summary { font-weight: 600; margin: 1rem 0 2rem; } .good { color: var(--good); }
.bad { color: var(--error); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .3rem 1.2rem; margin: 1rem 0; }
dd { margin: 0; overflow-wrap: anywhere; }
section { border: 1px solid var(--line); border-left: 4px solid var(--error); border-radius: 8px;
  padding: 1.1rem 1.3rem; margin: 1.2rem 0; }
section.weights { border-left-color: var(--warning); } .kind { float: right; font-size: .85rem; }
.sides { display: grid; grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); gap: 1rem; }
.sides > div { min-width: 0; } .file { margin: 0 0 .3rem; font-size: .85rem; }
pre { margin: 0; padding: .6rem 0; background: var(--soft); border-radius: 6px; overflow: auto;
  font: 13.5px/1.55 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
pre span { display: block; padding: 0 1rem; } pre i { color: var(--faint); font-style: normal;
  display: inline-block; width: 3.2em; user-select: none; }
pre .port { background: var(--mark); } pre .reference { background: var(--there); }
"""


def as_html(report: PortFacts, language: Language = "en") -> str:
    """Return the comparison as one HTML page without external files."""
    title = escape(
        word("comparison", language).format(port=report.port, reference=report.reference)
    )
    tone = "good" if report.same else "bad"
    walk = report.walk
    facts = {
        **assumption(report, language),
        "inputs": report.inputs,
        "weights": word("share", language).format(share=report.weights.share),
        "common": word("of", language).format(n=walk.n_common, m=walk.n_operations),
        "logits": f"{walk.difference:.1e}",
    }
    rows = "".join(
        f"<dt>{word(key, language)}</dt><dd>{escape(text)}</dd>" for key, text in facts.items()
    )
    departures = "\n".join(_departure(departure, language) for departure in report.departures)
    return f"""<!doctype html>
<html lang="{_CODES[language]}">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{_STYLE}</style>
<h1>{title}</h1>
<dl>{rows}</dl>
<p class="summary {tone}">{escape(verdict_text(report, language))}</p>
{_weights(report, language)}
{departures}
</html>
"""


def as_fragment(report: PortFacts, language: Language = "en") -> str:
    """Return the same page for a notebook, in a frame of its own."""
    return in_frame(as_html(report, language))


def _weights(report: PortFacts, language: Language) -> str:
    if not report.weights.findings:
        return ""
    items = "".join(
        f"<li>{escape(weight_text(finding, language))}</li>" for finding in report.weights.findings
    )
    return (
        f'<section class="weights"><h2>{word("weights", language)}</h2><ul>{items}</ul></section>'
    )


def _departure(departure: Departure, language: Language) -> str:
    facts = {
        "shape": f"{departure.shape} · {departure.reference_shape}",
        "difference": f"{departure.difference:.1e}",
        "noise": f"{departure.noise:.1e}",
        "effect": f"{departure.effect:.1e}",
    }
    rows = "".join(
        f"<dt>{word(key, language)}</dt><dd>{escape(text)}</dd>" for key, text in facts.items()
    )
    lines = departure.lines
    if departure.line is not None and departure.line not in lines:
        lines = (departure.line, *lines)
    sides = _side("port", lines, language) + _side("reference", departure.reference_lines, language)
    kind = "" if departure.cause is None else departure.cause.kind
    return f"""<section><span class="kind">{kind}</span>
<h2>{escape(departure_title(departure, language))}</h2>
<p>{escape(cause_text(departure, language))}</p>
<div class="sides">{sides}</div>
<dl>{rows}</dl></section>"""


def _side(role: str, lines: tuple[SourceLine, ...], language: Language) -> str:
    """Return the source around the marked lines, with one excerpt for each file."""
    files: dict[str, set[int]] = {}
    for line in lines:
        files.setdefault(line.file, set()).add(line.line)
    excerpts = "".join(
        f'<p class="file">{escape(Path(file).name)}</p>{_excerpt(file, marked, role)}'
        for file, marked in files.items()
    )
    return f"<div><h3>{word(role, language)}</h3>{excerpts}</div>"


def _excerpt(file: str, marked: set[int], role: str) -> str:
    source = getlines(file)
    shown = sorted({n for line in marked for n in range(line - _AROUND, line + _AROUND + 1)})
    rows = []
    for n in shown:
        if 1 <= n <= len(source):
            mark = f' class="{role}"' if n in marked else ""
            rows.append(f"<span{mark}><i>{n}</i>{escape(source[n - 1].rstrip())}</span>")
    return f"<pre>{''.join(rows)}</pre>"
