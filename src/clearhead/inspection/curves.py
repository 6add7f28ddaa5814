"""Draws curves: as text for a terminal, or as PNG for a page (which needs matplotlib)."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from clearhead.errors import ClearheadError

# Braille: a cell is two dots wide and four high, and these are the bits of its dots by column.
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))


class Curve(NamedTuple):
    """The points of a curve."""

    x: Sequence[float]
    y: Sequence[float]


def curve_text(curve: Curve, *, width: int = 60, height: int = 12) -> str:
    """Draw a curve in braille dots, with the ends of both axes. Points that are not finite are left
    out."""
    points = [(x, y) for x, y in zip(curve.x, curve.y) if math.isfinite(y)]
    if not points:
        return "(nothing to draw yet)"
    lowest, highest = min(y for _, y in points), max(y for _, y in points)
    first, last = points[0][0], points[-1][0]
    cells = [[0] * width for _ in range(height)]
    for x, y in points:
        column = round((x - first) / ((last - first) or 1) * (2 * width - 1))
        row = round((highest - y) / ((highest - lowest) or 1) * (4 * height - 1))
        cells[row // 4][column // 2] |= _DOTS[column % 2][row % 4]
    labels = [f"{highest:.4g}", *[""] * (height - 2), f"{lowest:.4g}"]
    margin = max(map(len, labels))
    lines = [
        f"{label:>{margin}} │" + "".join(chr(0x2800 + bits) if bits else " " for bits in row)
        for label, row in zip(labels, cells)
    ]
    ends = f"{first:,.0f}", f"{last:,.0f}"
    axis = " " * margin + " └" + "─" * width
    below = " " * (margin + 2) + ends[0] + ends[1].rjust(width - len(ends[0]))
    return "\n".join([line.rstrip() for line in lines] + [axis, below])


def curves_png(
    curves: Mapping[str, Curve], path: Path, *, title: str, x: str = "step", y: str = ""
) -> None:
    """Draw all curves in one picture, each with its name."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ClearheadError(
            'PNG pictures need matplotlib; install it with: pip install "clearhead[plot]"'
        ) from None
    figure = Figure(figsize=(8, 4.5), dpi=120, layout="constrained")
    axes = figure.subplots()
    for name, curve in curves.items():
        many = len(curve.x) > 100
        axes.plot(curve.x, curve.y, label=name, linewidth=1.2, marker=None if many else ".")
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if len(curves) > 1:
        axes.legend(frameon=False)
    try:
        figure.savefig(path)
    except ValueError as error:  # an ending that matplotlib does not know
        raise ClearheadError(f"{path} cannot be drawn ({error}); name a .png file") from None
