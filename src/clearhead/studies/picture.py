"""Draws a study's result as SVG, with a panel for each measure and a row for each arm."""

import math
from collections.abc import Callable, Sequence
from html import escape

from rich.cells import cell_len

from clearhead.studies.comparing import ArmResult, StudyResult
from clearhead.studies.study_file import is_possible
from clearhead.studies.wording import heading, is_share, value_of, words

ROW, FONT, PLOT, GAP = 22, 13, 360, 46  # pixels
COLOURS = {
    "": "#555555",
    "none": "#555555",
    "same": "#555555",
    "better": "#1b7837",
    "worse": "#b2182b",
}
SMALLEST = 1e-200  # differences below it count as none: a tenth of them may be no number any more
WIDE = 20.0  # times the smallest mean: from here on a logarithmic axis shows more


def picture(result: StudyResult, language: str) -> str:
    """Dots are seeds, the solid line is the interval of the mean, and the dashed line is the
    baseline. Green and red: a difference from the baseline was shown. Text stays text, in the
    reader's fonts."""
    plan = result.plan
    titles = {arm.name: plan.title_of(arm.name, language) for arm in result.arms}
    left = 20 + round(0.6 * FONT * max(map(cell_len, titles.values()), default=0))
    width = left + PLOT + 150
    body = _legend(language, left)
    top = 10 + ROW
    for column in plan.columns:
        arms = [arm for arm in result.arms if column in arm.figures]
        if arms:
            base = next((arm for arm in arms if arm.name == plan.baseline), None)
            body += _panel(arms, base, column, titles, language, left, top)
            top += GAP + ROW * len(arms) + 24
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{top}" '
            f'viewBox="0 0 {width} {top}" font-family="sans-serif" font-size="{FONT}">',
            f'<rect width="{width}" height="{top}" fill="white"/>',
            *body,
            "</svg>\n",
        ]
    )


def _legend(language: str, left: int) -> list[str]:
    """What the colours and the dashed line mean, in one line."""
    say = words(language)
    elements: list[str] = []
    x, y, small = left, 10 + ROW // 2, FONT - 2
    for key in ("better", "worse", "none", "baseline"):
        dashed = key == "baseline"
        style = f'stroke="{COLOURS.get(key, COLOURS[""])}"'
        style += ' stroke-dasharray="4 3"' if dashed else ' stroke-width="3" stroke-opacity="0.5"'
        elements.append(f'<line x1="{x}" y1="{y}" x2="{x + 18}" y2="{y}" {style}/>')
        if not dashed:
            elements.append(f'<circle cx="{x + 9}" cy="{y}" r="3" fill="{COLOURS[key]}"/>')
        text = say[f"legend_{key}"]
        elements.append(
            f'<text x="{x + 24}" y="{y + 4}" font-size="{small}" fill="{COLOURS[""]}">'
            f"{escape(text)}</text>"
        )
        x += 24 + round(0.6 * small * cell_len(text)) + 12
    return elements


def _panel(
    arms: Sequence[ArmResult],
    base: ArmResult | None,
    column: str,
    titles: dict[str, str],
    language: str,
    left: int,
    top: int,
) -> list[str]:
    x_of, ticks, logarithmic = _axis(arms, column)
    say = words(language)
    scale = say["comma"] + say["logarithmic"] if logarithmic else ""
    first, bottom = top + GAP, top + GAP + ROW * len(arms)
    elements = [
        f'<text x="{left}" y="{top + 18}" font-weight="bold">'
        f"{escape(heading(column, language))}"
        f'<tspan font-weight="normal">{escape(scale)}</tspan></text>'
    ]
    for tick, label in ticks:
        x = left + x_of(tick)
        elements += [
            f'<line x1="{x:.1f}" y1="{first - 8}" x2="{x:.1f}" y2="{bottom}" stroke="#e0e0e0"/>',
            f'<text x="{x:.1f}" y="{first - 12}" text-anchor="middle" font-size="{FONT - 2}" '
            f'fill="#555555">{label}</text>',
        ]
    if base is not None:
        x = left + x_of(base.figures[column].value)
        elements.append(
            f'<line x1="{x:.1f}" y1="{first - 4}" x2="{x:.1f}" y2="{bottom}" stroke="#555555" '
            'stroke-dasharray="4 3"/>'
        )
    for number, arm in enumerate(arms):
        y = first + ROW * number + ROW // 2
        estimate, colour = arm.figures[column], COLOURS[arm.verdict(column)]
        elements.append(
            f'<text x="{left - 10}" y="{y + 4}" text-anchor="end">{escape(titles[arm.name])}</text>'
        )
        if estimate.half is not None:
            ends = [left + x_of(estimate.value + s * estimate.half) for s in (-1, 1)]
            elements.append(
                f'<line x1="{ends[0]:.1f}" y1="{y}" x2="{ends[1]:.1f}" y2="{y}" '
                f'stroke="{colour}" stroke-width="3" stroke-opacity="0.5"/>'
            )
        elements += [
            f'<circle cx="{left + x_of(value):.1f}" cy="{y}" r="3" fill="{colour}"/>'
            for value in arm.values[column]
        ]
        elements.append(
            f'<text x="{left + PLOT + 12}" y="{y + 4}" fill="{colour}">'
            f"{escape(value_of(arm, column))}</text>"
        )
    return elements


def _axis(
    arms: Sequence[ArmResult], column: str
) -> tuple[Callable[[float], float], list[tuple[float, str]], bool]:
    """Return a function that places a value, in pixels; the ticks with their labels; and whether
    the axis is logarithmic. The part of an interval that is beyond the axis is left out."""
    seen = [value for arm in arms for value in arm.values[column]]
    if is_share(column):
        ticks = [(tick / 4, f"{25 * tick}%") for tick in range(5)]
        return (lambda x: PLOT * min(1.0, max(0.0, x))), ticks, False
    low, high = min(seen), max(seen)
    if low > 0 and high / low > WIDE and is_possible(column, math.inf):
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))

        def logarithmic(x: float) -> float:
            power = math.log10(x) if x > 0 else first
            return PLOT * min(1.0, max(0.0, (power - first) / (last - first)))

        return logarithmic, [(10.0**p, f"{10.0**p:g}") for p in range(first, last + 1)], True
    spread = high - low or abs(high)
    if spread < SMALLEST:
        spread = 1.0
    least = 0.0 if low >= 0 else -math.inf  # no axis of losses begins below 0
    figures = [arm.figures[column] for arm in arms]
    ends = [figure.value + side * (figure.half or 0.0) for figure in figures for side in (-1, 1)]
    # An interval of hardly any seeds would hide the dots.
    low, high = max(min(low, *ends), low - spread), min(max(high, *ends), high + spread)
    low, high = max(least, low - 0.1 * spread), high + 0.1 * spread
    return (
        (lambda x: PLOT * min(1.0, max(0.0, (x - low) / (high - low)))),
        round_ticks(low, high),
        False,
    )


def round_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Return round numbers between the ends of an axis, at least three, with the digits that they
    need."""
    power = math.floor(math.log10((high - low) / 3))
    step = max(m * 10.0**power for m in (1, 2, 5) if m * 10.0**power <= (high - low) / 3)
    numbers = range(math.ceil(low / step), math.floor(high / step) + 1)
    return [(n * step, f"{n * step:.{max(0, -power)}f}") for n in numbers]
