"""Draws matrices, such as attention maps and position tables: as text for a terminal, or as SVG for
a page. Neither needs an extra package."""

from collections.abc import Sequence
from html import escape
from math import isfinite

from rich.cells import cell_len

from clearhead.shapes import Float, Tensor

SHADES = " ░▒▓█"
_CELL = 14  # pixels
_FONT = 11


def heatmap_text(
    matrix: Float[Tensor, "rows columns"],
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
) -> str:
    """Draw one character, two columns wide, for each number. The largest number is full, zero is
    blank, and a number that is not finite is `??`."""
    finite = matrix[matrix.isfinite()].abs()
    top = max(finite.max().item() if len(finite) else 0.0, 1e-30)
    rows = _labels(rows, matrix.shape[0])
    columns = _labels(columns, matrix.shape[1])
    margin = max(map(cell_len, rows))
    depth = max(map(len, columns))
    lines = [
        " " * (margin + 1) + "".join(_two_cells(column.rjust(depth)[i]) for column in columns)
        for i in range(depth)
    ]
    for label, numbers in zip(rows, matrix.tolist()):
        cells = (
            SHADES[round(abs(x) / top * (len(SHADES) - 1))] * 2 if isfinite(x) else "??"
            for x in numbers
        )
        lines.append(" " * (margin - cell_len(label)) + f"{label} " + "".join(cells))
    return "\n".join(line.rstrip() for line in lines)


def heatmap_svg(
    matrix: Float[Tensor, "rows columns"],
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    title: str = "",
) -> str:
    """Draw a self-contained picture: positive numbers are blue, negative ones orange, and zero is
    white. Each cell shows its number on hover."""
    top = max(matrix.abs().max().item(), 1e-30)
    rows = _labels(rows, matrix.shape[0])
    columns = _labels(columns, matrix.shape[1])
    left = 12 + round(0.62 * _FONT * max(map(cell_len, rows)))
    above = 34 + round(0.62 * _FONT * max(map(cell_len, columns)))
    title_width = round(0.62 * (_FONT + 2) * cell_len(title))
    width = left + max(_CELL * len(columns), title_width) + 12
    height = above + _CELL * len(rows) + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="{_FONT}">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{left}" y="18" font-size="{_FONT + 2}">{escape(title)}</text>',
    ]
    for j, label in enumerate(columns):
        x, y = left + _CELL * j + _CELL // 2 + 4, above - 5
        parts.append(f'<text transform="translate({x},{y}) rotate(-90)">{escape(label)}</text>')
    for i, (label, numbers) in enumerate(zip(rows, matrix.tolist())):
        y = above + _CELL * i
        parts.append(f'<text x="{left - 5}" y="{y + 11}" text-anchor="end">{escape(label)}</text>')
        for j, number in enumerate(numbers):
            parts.append(
                f'<rect x="{left + _CELL * j}" y="{y}" width="{_CELL}" height="{_CELL}" '
                f'fill="{_colour(number / top)}"><title>{escape(label)} → {escape(columns[j])}: '
                f"{number:.3f}</title></rect>"
            )
    return "\n".join([*parts, "</svg>\n"])


def _two_cells(character: str) -> str:
    """Fill two columns: a Chinese character is as wide as two others."""
    return character + " " * (2 - cell_len(character))


def _labels(labels: Sequence[str] | None, n: int) -> list[str]:
    return [str(i) for i in range(n)] if labels is None else [str(label) for label in labels]


def _colour(x: float) -> str:
    """-1 … 1 → orange … white … blue."""
    end = (31, 90, 166) if x >= 0 else (214, 106, 20)
    return "#" + "".join(f"{round(255 + (channel - 255) * abs(x)):02x}" for channel in end)
