"""Draws a few shapes of SVG. The colours survive grey printing and red-green blindness: one blue
from light to dark, and one orange. Forbidden places are hatched, not coloured."""

from collections.abc import Sequence
from html import escape

INK, BLUE, ORANGE, GREY, LIGHT = "#1c2733", "#1f5aa6", "#d66a14", "#8592a0", "#e6ebf0"
FONT = "system-ui, 'Noto Sans CJK SC', 'PingFang SC', 'Microsoft YaHei', sans-serif"
_HATCH = (
    '<defs><pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><rect width="5" height="5" fill="white"/>'
    f'<line x1="0" y1="0" x2="0" y2="5" stroke="{GREY}" stroke-width="1.2"/></pattern></defs>'
)


def number(x: float) -> str:
    """Format a number with at most two decimals and without trailing zeros."""
    return f"{x:.2f}".rstrip("0").rstrip(".")


class Drawing:
    """Collects shapes; `text` is the content of the file."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self.parts: list[str] = []

    def rect(
        self,
        x: float,
        y: float,
        w: float,
        h: float,
        fill: str = "none",
        stroke: str = "none",
        width: float = 1,
        radius: float = 0,
    ) -> None:
        edge = f' stroke="{stroke}" stroke-width="{number(width)}"' if stroke != "none" else ""
        round_ = f' rx="{number(radius)}"' if radius else ""
        self.parts.append(
            f'<rect x="{number(x)}" y="{number(y)}" width="{number(w)}" height="{number(h)}" '
            f'fill="{fill}"{edge}{round_}/>'
        )

    def cells(self, places: dict[str, list[tuple[float, float]]], w: float, h: float) -> None:
        """Draw many rectangles of one size, by their fill, with one shape for each fill."""
        for fill, corners in places.items():
            box = f"h{number(w)}v{number(h)}h-{number(w)}z"
            path = "".join(f"M{number(x)} {number(y)}{box}" for x, y in corners)
            self.parts.append(f'<path fill="{fill}" d="{path}"/>')

    def line(
        self,
        points: Sequence[tuple[float, float]],
        colour: str = INK,
        width: float = 1.5,
        dash: str = "",
        arrow: bool = False,
    ) -> None:
        path = " ".join(f"{number(x)},{number(y)}" for x, y in points)
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" '
            f'stroke-width="{number(width)}"{dashed}/>'
        )
        if arrow:
            (x0, y0), (x1, y1) = points[-2:]
            length = max(((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5, 1e-9)
            dx, dy = 6 * (x1 - x0) / length, 6 * (y1 - y0) / length
            head = [(x1, y1), (x1 - dx - dy / 2, y1 - dy + dx / 2)]
            head.append((x1 - dx + dy / 2, y1 - dy - dx / 2))
            corners = " ".join(f"{number(a)},{number(b)}" for a, b in head)
            self.parts.append(f'<polygon points="{corners}" fill="{colour}"/>')

    def words(
        self,
        x: float,
        y: float,
        text: str,
        anchor: str = "start",
        size: float = 12,
        colour: str = INK,
        bold: bool = False,
        turn: bool = False,
    ) -> None:
        weight = ' font-weight="600"' if bold else ""
        turned = f' transform="rotate(-90 {number(x)} {number(y)})"' if turn else ""
        self.parts.append(
            f'<text x="{number(x)}" y="{number(y)}" text-anchor="{anchor}" '
            f'font-size="{number(size)}" fill="{colour}"{weight}{turned}>{escape(text)}</text>'
        )

    def text(self) -> str:
        """Return the whole file."""
        size = f"{number(self.width)} {number(self.height)}"
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" '
                f'width="{number(self.width)}" role="img" font-family="{FONT}">',
                f"<title>{escape(self.title)}</title>",
                _HATCH,
                f'<rect width="{number(self.width)}" height="{number(self.height)}" fill="white"/>',
                *self.parts,
                "</svg>\n",
            ]
        )


def shade(x: float) -> str:
    """-1 … 1 → orange … white … blue."""
    end = (31, 90, 166) if x >= 0 else (214, 106, 20)
    x = min(abs(x), 1.0)
    return "#" + "".join(f"{round(255 + (channel - 255) * x):02x}" for channel in end)


SHADES = 20


def by_fill(
    matrix: Sequence[Sequence[float | None]], x: float, y: float, w: float, h: float, most: float
) -> dict[str, list[tuple[float, float]]]:
    """Return the corners of a matrix's cells, by their fill. White cells are left out, because the
    background is white."""
    found: dict[str, list[tuple[float, float]]] = {}
    for i, row in enumerate(matrix):
        for j, value in enumerate(row):
            level = None if value is None else round(value / most * SHADES)
            if level != 0:
                fill = "url(#hatch)" if level is None else shade(level / SHADES)
                found.setdefault(fill, []).append((x + j * w, y + i * h))
    return found


def grid(
    d: Drawing,
    x: float,
    y: float,
    cell: float,
    matrix: Sequence[Sequence[float | None]],
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    top: float | None = None,
    size: float = 11,
    numbers: bool = False,
) -> None:
    """Draw a matrix of cells; None is hatched. Row labels are on the left, column labels above."""
    height, width = len(matrix), len(matrix[0])
    most = top or max((abs(v) for row in matrix for v in row if v is not None), default=1) or 1
    d.cells(by_fill(matrix, x, y, cell, cell, most), cell, cell)
    for i, row in enumerate(matrix):
        for j, value in enumerate(row):
            if numbers and value is not None:
                colour = "white" if abs(value / most) > 0.55 else INK
                d.words(x + (j + 0.5) * cell, y + (i + 0.62) * cell, number(value), "middle", size,
                        colour)  # fmt: skip
    d.rect(x, y, width * cell, height * cell, stroke=GREY, width=0.8)
    for i, label in enumerate(rows):
        d.words(x - 5, y + (i + 0.5) * cell + size * 0.35, label, "end", size)
    for j, label in enumerate(columns):
        d.words(x + (j + 0.5) * cell, y - 5, label, "middle", size)


class Axes:
    """A frame with linear or logarithmic scales."""

    def __init__(
        self,
        d: Drawing,
        box: tuple[float, float, float, float],
        xs: tuple[float, float],
        ys: tuple[float, float],
    ) -> None:
        self.d, self.box, self.xs, self.ys = d, box, xs, ys
        x, y, w, h = box
        d.line([(x, y), (x, y + h), (x + w, y + h)], GREY, 1)

    def at(self, u: float, v: float) -> tuple[float, float]:
        """Return the place of a point in the picture."""
        x, y, w, h = self.box
        (x0, x1), (y0, y1) = self.xs, self.ys
        return x + w * (u - x0) / (x1 - x0), y + h * (1 - (v - y0) / (y1 - y0))

    def ticks(self, xs: dict[float, str], ys: dict[float, str]) -> None:
        x, y, w, h = self.box
        for u, label in xs.items():
            self.d.words(self.at(u, 0)[0], y + h + 16, label, "middle", 11)
        for v, label in ys.items():
            at = self.at(self.xs[0], v)[1]
            self.d.line([(x, at), (x + w, at)], LIGHT, 0.8)
            self.d.words(x - 6, at + 4, label, "end", 11)

    def curve(
        self, points: Sequence[tuple[float, float]], colour: str, dash: str = "", width: float = 2
    ) -> None:
        self.d.line([self.at(u, v) for u, v in points], colour, width, dash)

    def names(self, below: str, left: str, gap: float = 38) -> None:
        """Write what the axes show; `gap` is the space that the numbers on the left need."""
        x, y, w, h = self.box
        self.d.words(x + w / 2, y + h + 36, below, "middle", 12)
        self.d.words(x - gap, y + h / 2, left, "middle", 12, turn=True)
