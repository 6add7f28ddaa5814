"""Writes a report as one self-contained HTML page, without scripts, and without fonts or addresses
from elsewhere."""

from html import escape

from .facts import ExaminationFacts
from .findings import Cell, Finding, Outcome
from .texts import (
    Language,
    ability_name,
    explain,
    place_name,
    stopped,
    summary,
    verdict,
    word,
)

_CODES = {"en": "en", "zh": "zh-Hans"}
_STYLE = """
:root { --paper: #fff; --ink: #1c2330; --faint: #667085; --line: #e4e7ec; --soft: #f7f8fa;
  --error: #b42318; --warning: #a15c07; --note: #175cd3; --good: #067647; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #14171f; --ink: #e6e9ef; --faint: #98a2b3; --line: #2b3140; --soft: #1b202b;
    --error: #f97066; --warning: #fdb022; --note: #84adff; --good: #47cd89; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2.5rem 1.25rem 4rem; max-width: 60rem; background: var(--paper);
  color: var(--ink); font: 16px/1.6 system-ui, "PingFang SC", "Microsoft YaHei", sans-serif; }
h1 { font-size: 1.7rem; margin: 0; } h2 { font-size: 1.15rem; margin: 0 0 .6rem; }
.size, dt, .case, figcaption, .reason { color: var(--faint); }
.summary { font-weight: 600; margin: 1rem 0 2rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .3rem 1.2rem; margin: 1rem 0; }
dd { margin: 0; overflow-wrap: anywhere; }
code, pre { font: 13.5px/1.55 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
section { border: 1px solid var(--line); border-left: 4px solid var(--tone); border-radius: 8px;
  padding: 1.1rem 1.3rem; margin: 1.2rem 0; }
section h2 b { color: var(--tone); margin-right: .5rem; }
.case { float: right; font-size: .85rem; }
.error { --tone: var(--error); } .warning { --tone: var(--warning); } .note { --tone: var(--note); }
/* One above the other: their lines can be compared. */
.pair { display: grid; gap: .8rem; } .pair > div { min-width: 0; }
.pair p { margin: 0 0 .3rem; font-size: .9rem; }
.pair .wrong { color: var(--error); } .pair .right { color: var(--good); }
pre { margin: 0; padding: .8rem 1rem; background: var(--soft); border-radius: 6px; overflow: auto; }
figure { margin: 1rem 0; } figcaption { font-size: .85rem; margin-top: .4rem; }
.grid { display: inline-grid; gap: 2px; }
.grid i { width: 1rem; height: 1rem; border-radius: 2px; background: var(--line); }
.grid .sees { background: var(--good); opacity: .75; } .grid .leaks { background: var(--error); }
table { border-collapse: collapse; width: 100%; font-size: .92rem; margin-top: .6rem; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line); }
td:last-child, th:last-child { text-align: right; font-variant-numeric: tabular-nums; }
.passed { color: var(--good); } .found { color: var(--error); }
"""


def as_html(report: ExaminationFacts, language: Language = "en") -> str:
    """Return the report as one HTML page without external files."""
    title = escape(word("examination", language).format(subject=report.subject))
    return f"""<!doctype html>
<html lang="{_CODES[language]}">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{_STYLE}</style>
{_body(report, language)}
</html>
"""


def as_fragment(report: ExaminationFacts, language: Language = "en") -> str:
    """Return the same page for a notebook, inside a frame, so that its style affects nothing
    else."""
    return in_frame(as_html(report, language))


def in_frame(page: str) -> str:
    """Return a page in a frame that runs no script."""
    source = escape(page, quote=True)
    return (
        f'<iframe srcdoc="{source}" sandbox style="width: 100%; height: 40rem; border: 0"></iframe>'
    )


def _body(report: ExaminationFacts, language: Language) -> str:
    title = escape(word("examination", language).format(subject=report.subject))
    size = word("parameters", language).format(n=report.n_parameters)
    recognised = "".join(
        f"<dt>{escape(ability_name(ability, language))}</dt><dd><code>{escape(how)}</code></dd>"
        for ability, how in report.recognised.items()
    )
    findings = "\n".join(_finding(finding, report, language) for finding in report.headlines)
    tone = "passed" if report.healthy else "found"
    last_line = summary(report.findings, report.outcomes, language)
    not_run = "".join(f"<p>{escape(stopped(outcome, language))}</p>" for outcome in report.not_run)
    return f"""<h1>{title}</h1>
<div class="size">{size}</div>
<dl>{recognised}</dl>
<p class="summary {tone}">{escape(last_line)}</p>
{not_run}
{findings}
<h2>{word("checks", language)}</h2>
{_checks(report.outcomes, language)}"""


def _finding(finding: Finding, report: ExaminationFacts, language: Language) -> str:
    words = explain(finding, language)
    facts = {
        "place": finding.place and f"<code>{escape(place_name(finding.place, language))}</code>",
        "why": escape(words.why),
        "cause": escape(words.cause),
        "follows": _following(report.following(finding), language),
        "repeat": f"<code>--only {finding.check} --seed {report.seed}</code>",
    }
    rows = "".join(
        f"<dt>{word(key, language)}</dt><dd>{text}</dd>" for key, text in facts.items() if text
    )
    pair = "".join(
        f'<div><p class="{key}">{sign} {word(key, language)}</p><pre>{escape(code)}</pre></div>'
        for key, sign, code in (("wrong", "✗", words.wrong), ("right", "✓", words.right))
    )
    return f"""<section class="{finding.severity}">
<span class="case">{finding.case}</span>
<h2><b>{word(finding.severity, language)}</b>{escape(words.title)}</h2>
<p>{escape(words.seen)}</p>
{_picture(finding.picture, language) if finding.picture else ""}
<dl>{rows}</dl>
<div class="pair">{pair}</div>
</section>"""


def _following(findings: list[Finding], language: Language) -> str:
    return "<br>".join(
        f"<code>{f.case}</code> {escape(explain(f, language).title)}" for f in findings
    )


def _picture(picture: list[list[Cell]], language: Language) -> str:
    cells = "".join(f'<i class="{cell}"></i>' for row in picture for cell in row)
    columns = f"grid-template-columns: repeat({len(picture)}, 1rem)"
    caption = escape(word("picture_page", language))
    grid = f'<div class="grid" style="{columns}">{cells}</div>'
    return f"<figure>{grid}<figcaption>{caption}</figcaption></figure>"


def _checks(outcomes: tuple[Outcome, ...], language: Language) -> str:
    head = "".join(f"<th>{word(key, language)}</th>" for key in ("check", "result", "seconds"))
    rows = "".join(
        f"<tr><td>{outcome.check}</td>"
        f'<td class="{outcome.status.split()[0]}">{escape(verdict(outcome, language))}</td>'
        f"<td>{outcome.seconds:.2f}</td></tr>"
        for outcome in outcomes
    )
    return f"<table><tr>{head}</tr>{rows}</table>"
