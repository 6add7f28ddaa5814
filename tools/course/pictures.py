"""Draws the pictures from data.json in two languages. A label is a key of words.toml."""

import json
import math
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clearhead import TrainConfig
from clearhead.course.exercises.byte_pairs.solution import learn_merges, merge_pair
from clearhead.training.schedule import learning_rate
from tools.course.svg import (
    BLUE,
    GREY,
    INK,
    LIGHT,
    ORANGE,
    Axes,
    Drawing,
    by_fill,
    grid,
    number,
    shade,
)

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "docs" / "pictures" / "course"
DATA = FOLDER / "data.json"
WORDS = tomllib.loads((Path(__file__).parent / "words.toml").read_text(encoding="utf-8"))
LANGUAGES = ("en", "zh")
Say = Callable[[str], str]


def read_data() -> dict[str, Any]:
    """Read the data that `measure` wrote."""
    return json.loads(DATA.read_text(encoding="utf-8")) if DATA.exists() else {}


def pictures(data: dict[str, Any]) -> dict[str, str]:
    """Return the SVG, by file name, of every picture whose data were measured."""
    found: dict[str, str] = {}
    if {"copy", "positions"} <= data.keys():
        data = {**data, "both": {name: data[name] for name in ("copy", "positions")}}
    for language in LANGUAGES:

        def say(key: str, language: str = language) -> str:
            return WORDS[key][LANGUAGES.index(language)]

        for chapter, part in MAPS.items():
            found[f"{chapter}-map.{language}.svg"] = figure_1(part, say)
        for name, (needs, draw) in DRAWN.items():
            if needs is None or needs in data:
                given = {} if needs is None else data[needs]
                found[f"{name}.{language}.svg"] = draw(given, say)
    return found


# ── the map: Figure 1 of the paper, with the part of the chapter marked ─────────────────────────

MAPS = {
    "00": "all",
    "00b": "embedding",
    "01": "attention",
    "02": "masks",
    "03": "heads",
    "04": "positions",
    "05": "residual",
    "06": "parameters",
    "07": "cross",
    "08": "output",
    "09": "all",
    "10": "output",
    "11": "exchanged",
    "12": "all",
    "13": "all",
}
Box = tuple[str, set[str]]
"""A label, and the chapters in which it is marked."""
BELOW: list[Box] = [
    ("embedding", {"all", "embedding", "parameters"}),
    ("position", {"all", "positions", "exchanged"}),
]
SUBLAYERS: tuple[list[Box], list[Box]] = (
    [
        ("self_attention", {"all", "attention", "heads", "exchanged"}),
        ("feed_forward", {"all", "parameters", "exchanged"}),
    ],
    [
        ("masked_attention", {"all", "attention", "heads", "masks", "exchanged"}),
        ("cross_attention", {"all", "attention", "heads", "cross"}),
        ("feed_forward", {"all", "parameters", "exchanged"}),
    ],
)
OUTPUT: Box = ("output", {"all", "output", "parameters"})


def figure_1(part: str, say: Say) -> str:
    """Draw two stacks from below: embedding, positions, sublayers with what follows each of them,
    and the output."""
    d = Drawing(470, 312, say("figure_1"))
    w, h, thin, gap, bottom = 160, 25, 15, 9, 276
    boxes: list[tuple[float, float, float, Box]] = []
    frames: list[tuple[float, float, float]] = []
    for column, sublayers in enumerate(SUBLAYERS):
        x, y = 34 + 220 * column, float(bottom)
        for box in BELOW:
            y -= h
            boxes.append((x, y, h, box))
            y -= gap
        start = y
        for box in sublayers:
            y -= h
            boxes.append((x, y, h, box))
            y -= thin + 2
            boxes.append((x, y, thin, ("add_norm", {"all", "residual", "exchanged"})))
            y -= gap
        frames.append((x, y + gap, start))
    x, top, _ = frames[1]
    boxes.append((x, top - gap - h - 3, h, OUTPUT))
    for column, (x, top, _) in enumerate(frames):
        end = top if column == 0 else top - gap - 3
        d.line([(x + w / 2, bottom + 4), (x + w / 2, end)], GREY, 1.2)
        d.words(x + w / 2, bottom + 22, say("source" if column == 0 else "target"), "middle", 12)
    x, top, _ = frames[0]
    cross_x, cross_y = frames[1][0], frames[1][2] - 2 * h - thin - 2 - gap + h / 2
    d.line([(x + w / 2, top), (x + w / 2, top - 16), (cross_x - 26, top - 16),
            (cross_x - 26, cross_y)], GREY, 1.2)  # fmt: skip
    d.line([(cross_x - 26, cross_y), (cross_x, cross_y)], GREY, 1.2, arrow=True)
    for x, y, height, (label, chapters) in boxes:
        marked, size = part in chapters, 12 if height == h else 10
        d.rect(x, y, w, height, BLUE if marked else LIGHT, INK if marked else GREY, 1, 4)
        d.words(x + w / 2, y + height / 2 + size * 0.36, say(label), "middle", size,
                "white" if marked else INK, marked)  # fmt: skip
        if label == "add_norm" and part == "residual":  # what skips the sublayer
            below = y + thin + 2 + h
            d.line([(x + w / 2, below + 4), (x - 6, below + 4), (x - 6, y + thin / 2),
                    (x, y + thin / 2)], BLUE, 2, arrow=True)  # fmt: skip
    for x, top, start in frames:
        d.rect(x - 12, top - 5, w + 24, start - top + 7, stroke=GREY, width=0.8, radius=6)
        d.words(x + w + 17, (top + start) / 2 + 4, "N×", "start", 12, GREY)
    return d.text()


# ── chapter 0 ───────────────────────────────────────────────────────────────────────────────────


def leak(data: Any, say: Say) -> str:
    d = Drawing(640, 292, say("leak"))
    for left, name in ((80, "specimen"), (390, "clearhead")):
        d.words(left + 88, 24, say(name), "middle", 13, bold=True)
        d.words(left + 88, 46, say("token_changed"), "middle", 11, GREY)
        cell, top = 22, 70
        for i, row in enumerate(data[name]):
            for j, sees in enumerate(row):
                x, y = left + j * cell, top + i * cell
                fill = (ORANGE if j > i else BLUE) if sees else "white"
                d.rect(x, y, cell, cell, fill, LIGHT, 0.8)
                if sees and j > i:
                    d.words(x + cell / 2, y + 16, "✗", "middle", 13, "white", True)
        for i in range(8):
            d.words(left - 6, top + i * cell + 15, str(i), "end", 11)
            d.words(left + i * cell + 11, top - 5, str(i), "middle", 11)
        d.words(left - 26, top + 88, say("logit_moves"), "middle", 11, GREY, turn=True)
    d.rect(80, 262, 12, 12, BLUE)
    d.words(98, 272, say("sees_past"), size=11)
    d.rect(360, 262, 12, 12, ORANGE)
    d.words(378, 272, say("sees_future"), size=11)
    return d.text()


def one_sequence(data: Any, say: Say) -> str:
    d = Drawing(560, 270, say("one_sequence"))
    axes = Axes(d, (60, 30, 470, 180), (0, 8), (0, 3.2))
    axes.ticks({i + 0.5: str(i) for i in range(8)}, {0: "0", 1: "1", 2: "2", 3: "3"})
    for i, value in enumerate(data["by_place"]):
        (x0, y0), (x1, y1) = axes.at(i + 0.2, value), axes.at(i + 0.8, 0)
        d.rect(x0, y0, x1 - x0, y1 - y0, BLUE)
        d.words((x0 + x1) / 2, y0 - 5, f"{value:.2f}", "middle", 11)
    floor = math.log(16)
    axes.curve([(0, floor), (8, floor)], ORANGE, "5 3", 1.5)
    d.words(66, axes.at(0, floor)[1] - 6, say("floor"), "start", 11, ORANGE)
    axes.names(say("position_predicted"), say("loss"))
    return d.text()


# ── chapter 0b ──────────────────────────────────────────────────────────────────────────────────

TWELVE_WORDS = "the cat sat the rat sat the fat cat ate the hat"


def merges(_: Any, say: Say) -> str:
    words = [list(word) for word in TWELVE_WORDS.split()]
    rows = [("", words)]
    for pair in learn_merges(TWELVE_WORDS, 5):
        words = [merge_pair(word, pair) for word in words]
        rows.append((" ".join(pair) + " → " + "".join(pair), words))
    d, letter = Drawing(820, 54 + 34 * len(rows), say("merges")), 14
    d.words(20, 24, say("merge"), size=11, colour=GREY)
    d.words(800, 24, say("tokens"), "end", 11, GREY)
    for row, (label, tokens) in enumerate(rows):
        x, y = 124.0, 38 + 34 * row
        d.words(20, y + 16, label, size=12, bold=True)
        for word in tokens:
            for token in word:
                w, whole = letter * len(token), len(token) > 1
                d.rect(
                    x + 1, y, w - 2, 22, shade(0.25 * len(token)) if whole else LIGHT, GREY, 0.8, 4
                )
                dark = len(token) > 2
                d.words(x + w / 2, y + 16, token, "middle", 12, "white" if dark else INK)
                x += w
            x += 9
        d.words(800, y + 16, str(sum(map(len, tokens))), "end", 12)
    return d.text()


def vocabulary(data: Any, say: Say) -> str:
    d = Drawing(560, 290, say("vocabulary"))
    axes = Axes(d, (60, 30, 440, 190), (math.log(259), math.log(16000)), (0, 34))
    axes.ticks(
        {math.log(n): f"{n:,}" for n in data["size"] if n not in (300, 600)},
        {n: str(n) for n in (0, 10, 20, 30)},
    )
    for name, colour, dash in (("english", BLUE, ""), ("chinese", ORANGE, "7 3")):
        axes.curve([(math.log(n), v) for n, v in zip(data["size"], data[name])], colour, dash, 2.2)
        for at in (0, -1) if name == "english" else (-1,):
            x, y = axes.at(math.log(data["size"][at]), data[name][at])
            below = 16 if name == "chinese" else -6
            d.words(
                x + 4 * (1 + 2 * at),
                y + below,
                f"{data[name][at]:.1f}",
                "start" if at == 0 else "end",
                11,
                colour,
            )
    for row, (name, colour, dash) in enumerate((("english", BLUE, ""), ("chinese", ORANGE, "7 3"))):
        d.line([(340, 50 + 20 * row), (368, 50 + 20 * row)], colour, 2.2, dash)
        d.words(376, 54 + 20 * row, say(name))
    axes.names(say("vocabulary_axis"), say("tokens_axis"))
    return d.text()


# ── chapter 1 ───────────────────────────────────────────────────────────────────────────────────


def turn(data: Any, say: Say) -> str:
    d = Drawing(560, 290, say("turn"))
    axes = Axes(d, (60, 40, 470, 190), (0, 360), (0, 1))
    axes.ticks(
        {a: f"{a}°" for a in (0, 45, 90, 135, 180, 225, 270, 315, 360)},
        {0: "0", 0.5: "0.5", 1: "1"},
    )
    styles = (("apple", BLUE, ""), ("banana", ORANGE, "7 3"), ("chair", INK, "2 3"))
    for i, (name, colour, dash) in enumerate(styles):
        axes.curve(list(zip(data["angle"], data["weights"][i])), colour, dash, 2.2)
        x = 90 + i * 150
        d.line([(x, 22), (x + 28, 22)], colour, 2.2, dash)
        d.words(x + 34, 26, say(name))
    at = axes.at(45, 0)[0]
    d.line([(at, 40), (at, 230)], GREY, 1, "3 3")
    d.words(at + 4, 54, say("fruit"), size=11, colour=GREY)
    axes.names(say("angle"), say("weight"))
    return d.text()


def entropy(data: Any, say: Say) -> str:
    d = Drawing(560, 270, say("entropy"))
    axes = Axes(d, (60, 34, 470, 178), (1.6, 10.4), (0, 2.2))
    axes.ticks({math.log2(n): str(n) for n in data["d"]}, {0: "0", 1: "1", 2: "2"})
    for name, colour, dash in (("raw", ORANGE, "7 3"), ("scaled", BLUE, "")):
        points = [(math.log2(n), v) for n, v in zip(data["d"], data[name])]
        axes.curve(points, colour, dash)
        for u, v in points:
            x, y = axes.at(u, v)
            d.rect(x - 3, y - 3, 6, 6, colour)
            d.words(x, y - 8, f"{v:.2f}", "middle", 11)
        x, y = axes.at(8.4, data[name][3])
        d.words(x, y + (18 if name == "scaled" else -22), say(name), "middle", 12, colour)
    axes.curve([(1.6, math.log(8)), (10.4, math.log(8))], GREY, "3 3", 1)
    d.words(528, axes.at(2, math.log(8))[1] - 5, say("even"), "end", 11, GREY)
    axes.names(say("width"), say("entropy_axis"))
    return d.text()


def distance(data: Any, say: Say) -> str:
    d = Drawing(560, 270, say("distance"))
    low = min(data["lstm"]) - 2
    axes = Axes(d, (90, 34, 440, 178), (3.6, 9.4), (low, 2))
    powers = [0, -10, -20, -30]
    axes.ticks(
        {math.log2(n): str(n) for n in data["length"]},
        {p: f"1e{p}" if p else "1" for p in powers if p > low},
    )
    for name, colour, dash in (("lstm", ORANGE, "7 3"), ("attention", BLUE, "")):
        points = [(math.log2(n), v) for n, v in zip(data["length"], data[name])]
        axes.curve(points, colour, dash)
        for u, v in points:
            x, y = axes.at(u, v)
            d.rect(x - 3, y - 3, 6, 6, colour)
        x, y = axes.at(*points[-1])
        place = (x, y + 18, "end") if name == "attention" else (x + 8, y + 4, "start")
        d.words(place[0], place[1], say(name), place[2], 12, colour)
    axes.names(say("length"), say("gradient_ratio"), gap=60)
    return d.text()


# ── chapter 2 ───────────────────────────────────────────────────────────────────────────────────

TOKENS = ["⟨bos⟩", "I", "like", "you"]


def masks(_: Any, say: Say) -> str:
    d = Drawing(620, 232, say("masks"))
    padded = [[j < 4 for j in range(6)] for _ in range(6)]
    documents = [0, 0, 0, 1, 1, 2]
    packed = [[documents[i] == documents[j] and j <= i for j in range(6)] for i in range(6)]
    causal = [[j <= i for j in range(6)] for i in range(6)]
    for n, (name, mask) in enumerate((("causal", causal), ("padded", padded), ("packed", packed))):
        x = 50 + n * 200
        d.words(x + 66, 22, say(name), "middle", 13, bold=True)
        cells: list[list[float | None]] = [[1.0 if ok else None for ok in row] for row in mask]
        columns = [str(j) for j in range(6)]
        if name == "padded":
            columns = ["a", "b", "c", "d", "–", "–"]
        if name == "packed":
            columns = ["A", "A", "A", "B", "B", "C"]
        rows = [str(j) for j in range(6)] if name == "causal" else columns
        grid(d, x, 56, 22, cells, rows, columns)
    d.words(310, 216, say("masks_legend"), "middle", 12, GREY)
    return d.text()


def wrong_masks(_: Any, say: Say) -> str:
    d = Drawing(660, 240, say("wrong_masks"))
    zero = [[0.0] * 4 for _ in range(4)]
    past = [[j <= i for j in range(4)] for i in range(4)]

    def softmax(row: list[float]) -> list[float]:
        powers = [math.exp(v) for v in row]
        return [p / sum(powers) for p in powers]

    right = [[1 / (i + 1) if j <= i else 0.0 for j in range(4)] for i in range(4)]
    added = [softmax([0.0 if ok else 1.0 for ok in row]) for row in past]
    after = [[0.25 if ok else 0.0 for ok in row] for row in past]
    none = [softmax(row) for row in zero]
    shown = (("right", right), ("added_01", added), ("after_softmax", after), ("no_mask", none))
    for n, (name, matrix) in enumerate(shown):
        x, cell = 50 + n * 156, 28
        d.words(x + 56, 22, say(name), "middle", 12, bold=True)
        rows = TOKENS if n == 0 else []
        cells: list[list[float | None]] = [[v or None for v in row] for row in matrix]
        grid(d, x, 58, cell, cells, rows, TOKENS, top=1.0, size=10, numbers=True)
        sums = [sum(row) for row in matrix]
        future = sum(sum(v for j, v in enumerate(row) if j > i) for i, row in enumerate(matrix))
        ends = sorted({number(min(sums)), number(max(sums))})
        d.words(x + 56, 190, say("row_sums").format("–".join(ends)), "middle", 11, GREY)
        share = say("percent").format(f"{100 * future / 4:.0f}")
        d.words(x + 56, 208, say("on_future").format(share), "middle", 11,
                ORANGE if future else GREY)  # fmt: skip
    d.words(330, 230, say("mean_of_rows"), "middle", 11, GREY)
    return d.text()


def _visible(token: str) -> str:
    return {" ": "␣", "\n": "↵"}.get(token, token)


def causal_head(data: Any, say: Say) -> str:
    length = 9
    tokens = [_visible(t) for t in data["tokens"][:length]]
    weights = data["weights"][2][1]
    cells = [[weights[i][j] if j <= i else None for j in range(length)] for i in range(length)]
    d = Drawing(420, 330, say("causal_head"))
    d.words(210, 24, say("causal_head"), "middle", 13, bold=True)
    grid(d, 80, 60, 27, cells, tokens, tokens, top=1.0, size=9, numbers=True)
    d.words(210, 322, say("hatched"), "middle", 11, GREY)
    return d.text()


# ── chapter 3 ───────────────────────────────────────────────────────────────────────────────────


def heads(data: Any, say: Say) -> str:
    tokens = [_visible(t) for t in data["tokens"]]
    n, cell, step = len(tokens), 7, 168
    d = Drawing(70 + 4 * step, 60 + 4 * step, say("heads"))
    for layer, in_layer in enumerate(data["weights"]):
        d.words(20, 60 + layer * step + 76, say("layer").format(layer), "middle", 12, turn=True)
        for head, matrix in enumerate(in_layer):
            x, y = 48 + head * step, 52 + layer * step
            if layer == 0:
                d.words(x + n * cell / 2, 22, say("head").format(head), "middle", 12)
            cells = [[matrix[i][j] if j <= i else None for j in range(n)] for i in range(n)]
            grid(d, x, y, cell, cells, tokens, tokens, top=1.0, size=6)
    return d.text()


def worth(data: Any, say: Say) -> str:
    d = Drawing(470, 300, say("worth"))
    rises = [data["rise"][4 * i : 4 * i + 4] for i in range(4)]
    rows = [say("layer").format(i) for i in range(4)]
    grid(d, 90, 50, 52, rises, rows, [say("head").format(i) for i in range(4)], size=12)
    for i in range(16):
        rise, error = data["rise"][i], data["interval"][i]
        x, y = 90 + 52 * (i % 4) + 26, 50 + 52 * (i // 4) + 24
        colour = "white" if rise > 0.55 * max(data["rise"]) else INK
        d.words(x, y, f"{rise:.3f}", "middle", 12, colour)
        d.words(x, y + 15, f"± {error:.3f}", "middle", 9, colour)
    d.words(194, 284, say("worth_below").format(f"{data['loss']:.2f}"), "middle", 12, GREY)
    return d.text()


def walk(_: Any, say: Say) -> str:
    steps = (
        ("x", "(2, 5, 12)"),
        ("unflatten", "(2, 5, 3, 4)"),
        ("transpose", "(2, 3, 5, 4)"),
        ("weights_step", "(2, 3, 5, 7)"),
        ("times_values", "(2, 3, 5, 4)"),
        ("transpose_back", "(2, 5, 3, 4)"),
        ("flatten", "(2, 5, 12)"),
    )
    d = Drawing(560, 40 + 44 * len(steps), say("walk"))
    for i, (name, shape) in enumerate(steps):
        y = 20 + 44 * i
        d.rect(30, y, 150, 28, LIGHT, GREY, 1, 4)
        d.words(105, y + 19, shape, "middle", 13, bold=True)
        d.words(200, y + 19, say(name), size=12)
        if i + 1 < len(steps):
            d.line([(105, y + 28), (105, y + 44)], GREY, 1.2, arrow=True)
    return d.text()


# ── chapter 4 ───────────────────────────────────────────────────────────────────────────────────


def table(data: Any, say: Say) -> str:
    matrix, cell = data["table"], 7
    d = Drawing(90 + 32 * 14, 70 + 48 * cell, say("table"))
    d.cells(by_fill(matrix, 60, 30, 14, cell, 1.0), 14, cell)
    d.rect(60, 30, 14 * 32, cell * 48, stroke=GREY, width=0.8)
    for i in range(0, 48, 8):
        d.words(54, 30 + cell * i + 7, str(i), "end", 10)
    for j in range(0, 32, 4):
        d.words(60 + 14 * j + 7, 24, str(j), "middle", 10)
    d.words(60 + 7 * 32, 30 + cell * 48 + 24, say("dimension"), "middle", 12)
    d.words(20, 30 + cell * 24, say("position_axis"), "middle", 12, turn=True)
    return d.text()


def products(data: Any, say: Say) -> str:
    d = Drawing(560, 260, say("products"))
    axes = Axes(d, (60, 30, 470, 170), (0, 100), (0, 1.05))
    axes.ticks({n: str(n) for n in range(0, 101, 20)}, {0: "0", 0.5: "0.5", 1: "1"})
    axes.curve(list(enumerate(data["products"])), BLUE)
    axes.names(say("distance_axis"), say("product"))
    return d.text()


def without_positions(data: Any, say: Say) -> str:
    return _copies([("with_positions", data["copy"]), ("no_positions", data["positions"])], say)


def _copies(shown: list[tuple[str, Any]], say: Say) -> str:
    characters = [*"clearhead2026", "⟨eos⟩"]
    cell = 15
    d = Drawing(70 + 290 * len(shown), 320, say("without_positions"))
    for n, (name, data) in enumerate(shown):
        x = 64 + n * 290
        d.words(x + 105, 22, say(name), "middle", 13, bold=True)
        grid(d, x, 62, cell, data["weights"][-1], characters, [*characters[:-1], "⟨e⟩"], 1.0, 10)
        d.words(x + 105, 300, say("copies_as").format(data["copied"]), "middle", 12, GREY)
    return d.text()


# ── chapters 5, 6 and 8 ───────────────────────────────────────────────────────────────────────────


def cosine(data: Any, say: Say) -> str:
    d = Drawing(560, 290, say("cosine"))
    axes = Axes(d, (60, 44, 470, 190), (1, 12), (0, 1.05))
    axes.ticks({n: str(n) for n in range(1, 13)}, {0: "0", 0.5: "0.5", 1: "1"})
    styles = (("pre", BLUE, ""), ("post", INK, "2 3"), ("none", ORANGE, "7 3"))
    for i, (name, colour, dash) in enumerate(styles):
        points = list(enumerate(data["cosine"][name], start=1))
        axes.curve(points, colour, dash, 2.2)
        x = 70 + i * 160
        d.line([(x, 22), (x + 28, 22)], colour, 2.2, dash)
        d.words(x + 34, 26, say(f"placement_{name}"))
    axes.names(say("after_layer"), say("mean_cosine"))
    return d.text()


def depths(data: Any, say: Say) -> str:
    d = Drawing(560, 290, say("depths"))
    axes = Axes(d, (60, 44, 470, 190), (1, 13), (0, 105))
    axes.ticks(
        {n: str(n) for n in data["layers"]}, {p: say("percent").format(p) for p in (0, 50, 100)}
    )
    styles = (("pre", BLUE, ""), ("post", INK, "2 3"), ("none", ORANGE, "7 3"))
    for i, (name, colour, dash) in enumerate(styles):
        near = (i - 1) * 0.12  # beside each other, so that no range hides another
        axes.curve([(n + near, at["mean"]) for n, at in zip(data["layers"], data[name])], colour,
                   dash)  # fmt: skip
        for n, at in zip(data["layers"], data[name]):
            axes.curve([(n + near, at["least"]), (n + near, at["most"])], colour, width=3)
            x, y = axes.at(n + near, at["mean"])
            d.rect(x - 3, y - 3, 6, 6, colour)
        x = 70 + i * 160
        d.line([(x, 22), (x + 28, 22)], colour, 2.2, dash)
        d.words(x + 34, 26, say(f"placement_{name}"))
    axes.names(say("n_layers"), say("right_answers"))
    return d.text()


def together(_: Any, say: Say) -> str:
    """Show which numbers share a mean and a variance, for two sentences of three tokens and of
    two."""
    d = Drawing(640, 236, say("together"))
    rows = ["a", "b", "c", "d", "e"]
    shaded = {
        "layer_norm": {(1, j) for j in range(4)},
        "batch_norm": {(i, 2) for i in range(5)},
        "length_norm": {(i, j) for i in range(3) for j in range(4)},
    }
    for n, (name, cells) in enumerate(shaded.items()):
        x = 48 + n * 204
        d.words(x + 56, 22, say(name), "middle", 13, bold=True)
        for top, first, last in ((48, 0, 3), (142, 3, 5)):
            matrix: list[list[float | None]] = [
                [1.0 if (i, j) in cells else 0.0 for j in range(4)] for i in range(first, last)
            ]
            grid(d, x, top, 28, matrix, rows[first:last], top=1.0)
            for j in range(1, 4):
                d.line([(x + 28 * j, top), (x + 28 * j, top + 28 * (last - first))], LIGHT, 0.8)
            for i in range(1, last - first):
                d.line([(x, top + 28 * i), (x + 112, top + 28 * i)], LIGHT, 0.8)
    d.words(320, 226, say("together_below"), "middle", 11, GREY)
    return d.text()


def placements(_: Any, say: Say) -> str:
    """Draw the residual stream around one sublayer: both placements of the norm, and a wrong
    one."""
    d = Drawing(640, 276, say("placements"))
    shown = (  # name, formula, where the stream splits, where it is joined, where the norm stands
        ("pre", "x + f(norm(x))", 214, 96, (92, 184)),
        ("post", "norm(x + f(x))", 214, 116, (0, 84)),
        ("wrong", "norm(x) + f(norm(x))", 176, 96, (0, 206)),
    )
    for n, (name, formula, split, join, (shift_norm, norm_y)) in enumerate(shown):
        x = 74 + 204 * n
        d.words(x + 46, 22, say(f"placement_{name}"), "middle", 13, bold=True)
        d.words(x + 46, 40, formula, "middle", 12)
        d.line([(x, 246), (x, 56)], BLUE, 3, arrow=True)
        d.line([(x, split), (x + 92, split), (x + 92, join), (x + 10, join)], GREY, 1.5,
               arrow=True)  # fmt: skip
        for at, y, label in ((x + shift_norm, norm_y, "norm"), (x + 92, 140, "sublayer")):
            d.rect(at - 37, y - 13, 74, 26, LIGHT, GREY, 1, 4)
            d.words(at, y + 4, say(f"placement_box_{label}"), "middle", 12)
        d.rect(x - 9, join - 9, 18, 18, "white", INK, 1.2, 9)
        d.words(x, join + 4.5, "+", "middle", 14)
        d.words(x, 264, "x", "middle", 13)
    return d.text()


def norms(data: Any, say: Say) -> str:
    d = Drawing(620, 228, say("norms"))
    left, step = 260, 300 / 14
    for i, name in enumerate(("plain", "scaled", "own", "trained")):
        y = 44 + 38 * i
        d.words(left - 10, y + 17, say(f"norm_{name}"), "end", 12)
        d.rect(left, y, max(data[name] * step, 2), 24, BLUE)
        d.words(left + data[name] * step + 8, y + 17, f"{data[name]:.3g}", size=12, bold=True)
    at = left + data["position"] * step
    d.line([(at, 32), (at, 196)], ORANGE, 2, "5 3")
    d.words(at, 24, say("norm_position").format(f"{data['position']:.0f}"), "middle", 12, ORANGE)
    d.words(left, 218, say("norm_below"), size=11, colour=GREY)
    return d.text()


def shares(data: Any, say: Say) -> str:
    d = Drawing(640, 240, say("shares"))
    kinds = {
        "feed_forward": BLUE,
        "self_attention": "#6f9bd1",
        "cross_attention": "#b9cfe8",
        "table": ORANGE,
        "rest": "url(#hatch)",
    }
    for i, (kind, fill) in enumerate(kinds.items()):
        d.rect(16 + 126 * i, 16, 12, 12, fill, GREY, 0.6)
        d.words(33 + 126 * i, 26, say(f"share_{kind}"), size=11)
    for i, (name, counts) in enumerate(data.items()):
        x, y = 16.0, 54 + 62 * i
        d.words(16, y, f"{name}: {counts['total']:,}", size=12, bold=True)
        for kind, fill in kinds.items():
            width = 600 * counts[kind] / counts["total"]
            d.rect(x, y + 8, width, 26, fill, "white", 0.6)
            if width > 34:
                colour = INK if kind == "cross_attention" else "white"
                share = say("percent").format(f"{100 * counts[kind] / counts['total']:.0f}")
                d.words(x + width / 2, y + 26, share, "middle", 11, colour)
            x += width
    return d.text()


def shift(_: Any, say: Say) -> str:
    d = Drawing(560, 250, say("shift"))
    sentences = (["⟨bos⟩", "I", "like", "you", "⟨eos⟩"], ["⟨bos⟩", "yes", "⟨eos⟩", "–", "–"])
    for n, tokens in enumerate(sentences):
        top = 40 + 110 * n
        for row, (label, line) in enumerate((("inputs", tokens[:-1]), ("targets", tokens[1:]))):
            y = top + 44 * row
            d.words(92, y + 19, say(label), "end", 12)
            for i, token in enumerate(line):
                pad = token == "–"
                fill = "url(#hatch)" if pad else LIGHT if row == 0 else BLUE
                d.rect(110 + 100 * i, y, 84, 28, fill, GREY, 1, 4)
                colour = "white" if row == 1 and not pad else INK
                d.words(152 + 100 * i, y + 19, token, "middle", 12, colour)
                if row == 0:
                    d.line(
                        [(152 + 100 * i, y + 28), (152 + 100 * i, y + 44)], GREY, 1.2, arrow=True
                    )
    d.words(280, 22, say("predicts"), "middle", 12, GREY)
    return d.text()


# ── chapter 7 ───────────────────────────────────────────────────────────────────────────────────


def diagonal(data: Any, say: Say) -> str:
    d = Drawing(760, 200, say("diagonal"))
    for n, (step, matrix) in enumerate(zip(data["steps"], data["weights"])):
        x, cell = 20 + n * 148, 9
        d.words(x + 63, 22, say("step").format(step), "middle", 12, bold=True)
        grid(d, x, 36, cell, matrix, top=1.0)
        loss = data["loss"].get(str(step))
        text = say("initial_weights") if loss is None else say("valid_loss").format(f"{loss:.3f}")
        d.words(x + 63, 182, text, "middle", 11, GREY)
    return d.text()


def wiring(_: Any, say: Say) -> str:
    d = Drawing(480, 250, say("wiring"))

    def box(x: float, y: float, label: str, marked: bool = False) -> None:
        d.rect(x, y, 130, 30, BLUE if marked else LIGHT, GREY, 1, 4)
        d.words(x + 65, y + 20, label, "middle", 12, "white" if marked else INK)

    for i in range(2):
        box(40, 170 - 60 * i, say("encoder_layer").format(i), marked=i == 1)
    for i in range(3):
        box(310, 190 - 70 * i, say("decoder_layer").format(i))
        d.line([(170, 125), (240, 125), (240, 205 - 70 * i), (310, 205 - 70 * i)], BLUE, 1.8,
               arrow=True)  # fmt: skip
        if i:
            d.line([(375, 190 - 70 * (i - 1)), (375, 220 - 70 * i)], GREY, 1.2, arrow=True)
    d.line([(105, 170), (105, 140)], GREY, 1.2, arrow=True)
    d.words(105, 92, say("memory_once"), "middle", 11, BLUE)
    return d.text()


# ── chapter 8 ───────────────────────────────────────────────────────────────────────────────────


def schedules(_: Any, say: Say) -> str:
    d = Drawing(560, 290, say("schedules"))
    axes = Axes(d, (66, 44, 464, 190), (0, 40_000), (0, 8))
    axes.ticks({n: f"{n:,}" for n in range(0, 40_001, 10_000)}, {v: str(v) for v in range(0, 9, 2)})
    paper = TrainConfig(schedule="noam", lr=1.0, warmup_steps=4000)
    top = learning_rate(4000, paper, 512)
    half = TrainConfig(schedule="cosine", lr=top, warmup_steps=4000, steps=40_000, final_lr=0.1)
    for i, (name, config, colour, dash) in enumerate(
        (("noam", paper, BLUE, ""), ("cosine", half, ORANGE, "7 3"))
    ):
        steps = [1, *range(500, 40_001, 500)]
        axes.curve([(s, 1e4 * learning_rate(s, config, 512)) for s in steps], colour, dash, 2.2)
        d.line([(76 + 200 * i, 22), (104 + 200 * i, 22)], colour, 2.2, dash)
        d.words(110 + 200 * i, 26, say(f"schedule_{name}"))
    axes.names(say("steps_trained"), say("schedule_rate"))
    return d.text()


def training(data: Any, say: Say) -> str:
    d = Drawing(720, 290, say("training"))
    for i, n in enumerate((16, 160)):
        axes = Axes(d, (60 + 345 * i, 60, 300, 170), (0, 200), (0, 5))
        axes.ticks({s: str(s) for s in (0, 50, 100, 150, 200)}, {v: str(v) for v in range(6)})
        d.words(210 + 345 * i, 48, say("texts_learnt").format(n), "middle", 13, bold=True)
        for column, colour, dash in ((0, BLUE, ""), (1, ORANGE, "7 3")):
            points = [(step, pair[column]) for step, pair in zip(data["steps"], data[str(n)])]
            axes.curve(points, colour, dash, 2.2)
        axes.names(say("steps_trained"), say("loss"))
    for x, name, colour, dash in (
        (210, "on_training", BLUE, ""),
        (400, "on_held_out", ORANGE, "7 3"),
    ):
        d.line([(x, 18), (x + 28, 18)], colour, 2.2, dash)
        d.words(x + 34, 22, say(name))
    return d.text()


# ── chapter 9 ───────────────────────────────────────────────────────────────────────────────────


def translation(data: Any, say: Say) -> str:
    written, source = data["written"], data["source"]
    cell, wide = 14, 14 * len(source)
    step, high = wide + 60, 14 * len(written) + 76
    layers, heads_ = len(data["weights"]), len(data["weights"][0])
    d = Drawing(50 + heads_ * step, 36 + layers * high, say("translation"))
    for i, row in enumerate(data["weights"]):
        d.words(16, 36 + i * high + high / 2, say("layer").format(i), "middle", 12, turn=True)
        for j, matrix in enumerate(row):
            x, y = 76 + j * step, 88 + i * high
            if i == 0:
                d.words(x + wide / 2, 18, say("head").format(j), "middle", 12)
            grid(d, x, y, cell, matrix, written, (), top=1.0, size=10)
            for k, token in enumerate(source):
                d.words(x + k * cell + 10, y - 4, token, "start", 9, turn=True)
    return d.text()


# ── chapter 10 ──────────────────────────────────────────────────────────────────────────────────


def candidates(data: Any, say: Say) -> str:
    d = Drawing(700, 290, say("candidates"))
    d.words(
        350, 22, say("prompt").format(data["prompt"].replace("\n", "↵")), "middle", 13, bold=True
    )
    for n, (temperature, bars) in enumerate(data["bars"].items()):
        x, kept = 30 + n * 226, data["kept"][temperature]
        d.words(x + 90, 48, f"T = {temperature}", "middle", 12, bold=True)
        for i, (token, value) in enumerate(zip(data["tokens"], bars)):
            y, inside = 60 + i * 20, i < kept
            d.words(x + 14, y + 13, _visible(token), "end", 12)
            d.rect(
                x + 20, y, max(130 * value, 0.6), 16, BLUE if inside else "url(#hatch)", GREY, 0.5
            )
            d.words(x + 26 + 130 * value, y + 13, f"{value:.3f}", size=11)
        d.words(x + 90, 278, say("top_p_keeps").format(kept), "middle", 11, GREY)
    return d.text()


def beams(data: Any, say: Say) -> str:
    nodes = {node["id"]: node for node in data["nodes"]}
    depth: dict[int, int] = {}
    for node in data["nodes"]:
        depth[node["id"]] = 0 if node["parent"] is None else depth[node["parent"]] + 1
    shown = [n for n in data["nodes"] if n["fate"] != "dropped" or _is_next(n, nodes, depth)]
    columns: dict[int, list[Any]] = {}
    for node in shown:
        columns.setdefault(depth[node["id"]], []).append(node)
    height = 44 + 34 * max(len(column) for column in columns.values())
    d = Drawing(60 + 116 * len(columns), height + 26, say("beams"))
    at: dict[int, tuple[float, float]] = {}
    for level, column in sorted(columns.items()):
        for i, node in enumerate(sorted(column, key=lambda n: -n["total"])):
            at[node["id"]] = (20 + 116 * level, 24 + 34 * i)
    for node in shown:
        x, y = at[node["id"]]
        if node["parent"] is not None:
            px, py = at[node["parent"]]
            colour = BLUE if node["best"] else GREY
            d.line([(px + 84, py + 12), (x, y + 12)], colour, 2.4 if node["best"] else 1)
    for node in shown:
        x, y = at[node["id"]]
        dropped = node["fate"] == "dropped"
        fill = BLUE if node["best"] else "url(#hatch)" if dropped else LIGHT
        d.rect(x, y, 84, 24, fill, GREY, 1, 4)
        label = _visible(node["token"]) if node["token"] else say("start")
        text = label if node["parent"] is None else f"{label}  {node['total']:.2f}"
        d.words(x + 42, y + 16, text, "middle", 12, "white" if node["best"] else INK, node["best"])
    d.words(20, height + 14, say("beams_legend"), size=11, colour=GREY)
    return d.text()


def _is_next(node: Any, nodes: dict[int, Any], depth: dict[int, int]) -> bool:
    """Tell whether a branch is, at each step, the best of those that were dropped: the one that
    lost narrowly."""
    rivals = [
        n for n in nodes.values()
        if n["fate"] == "dropped" and depth[n["id"]] == depth[node["id"]]
    ]  # fmt: skip
    return node is max(rivals, key=lambda n: n["total"])


def cache(_: Any, say: Say) -> str:
    d = Drawing(560, 260, say("cache"))
    most = sum(t * t for t in range(1, 101))
    axes = Axes(d, (100, 30, 430, 170), (0, 100), (0, most * 1.05))
    axes.ticks(
        {n: str(n) for n in range(0, 101, 20)},
        {v: f"{v:,}" for v in (0, 100_000, 200_000, 300_000)},
    )
    squares, sums, total_squares, total = [(0.0, 0.0)], [(0.0, 0.0)], 0, 0
    for t in range(1, 101):
        total_squares, total = total_squares + t * t, total + t
        squares.append((t, total_squares))
        sums.append((t, total))
    axes.curve(squares, ORANGE, "7 3")
    axes.curve(sums, BLUE)
    x, y = axes.at(74, squares[74][1])
    d.words(x - 8, y, say("without_cache"), "end", 12, ORANGE)
    x, y = axes.at(70, sums[70][1])
    d.words(x, y - 8, say("with_cache"), "middle", 12, BLUE)
    axes.names(say("tokens_generated"), say("products_axis"), gap=70)
    return d.text()


# ── chapters 11, 11b and 11c ────────────────────────────────────────────────────────────────────


def window(_: Any, say: Say) -> str:
    d, n, cell = Drawing(560, 270, say("window")), 10, 19
    for left, name, span in ((70, "causal", n), (330, "window_of_4", 4)):
        d.words(left + n * cell / 2, 24, say(name), "middle", 13, bold=True)
        allowed = [[1.0 if i - span < j <= i else None for j in range(n)] for i in range(n)]
        numbers = [str(i) for i in range(n)]
        grid(d, left, 50, cell, allowed, numbers, numbers)
    d.words(280, 262, say("masks_legend"), "middle", 11, GREY)
    return d.text()


def cost(_: Any, say: Say) -> str:
    d = Drawing(560, 290, say("cost"))
    axes = Axes(d, (60, 30, 470, 190), (6, 17), (0, 1))
    axes.ticks(
        {k: f"{2**k:,}" for k in range(6, 18, 2)},
        {
            0: say("percent").format(0),
            0.5: say("percent").format(50),
            1: say("percent").format(100),
        },
    )
    for width, colour, dash in ((64, BLUE, ""), (512, ORANGE, "7 3"), (4096, INK, "2 3")):
        points = [(k / 4, 2 ** (k / 4) / (6 * width + 2 ** (k / 4))) for k in range(24, 69)]
        axes.curve(points, colour, dash, 2.2)
        x, y = axes.at(math.log2(6 * width), 0.5)
        d.words(x - 8, y - 4, f"d = {width:,}", "end", 12, colour)
    axes.names(say("length"), say("cost_axis"), gap=46)
    return d.text()


def cost_in_time(data: Any, say: Say) -> str:
    """Draw two sublayers of one layer, on two logarithmic scales. A vertical bar reaches from the
    fastest round to the slowest, and a thick horizontal bar over the crossings of the rounds."""
    d = Drawing(600, 372, say("cost_in_time"))
    lengths, rows = data["lengths"], data["milliseconds"]
    axes = Axes(d, (70, 56, 490, 250), (5.8, 12.2), (0, 3))
    axes.ticks(
        {math.log2(n): f"{n:,}" for n in lengths},
        {k: f"{10**k:,}" for k in range(4)},
    )
    styles = (("feed_forward", INK, "2 3"), ("explicit", ORANGE, "7 3"), ("fused", BLUE, ""))
    for i, (name, colour, dash) in enumerate(styles):
        ends = zip(lengths, rows[name], data["slowest_milliseconds"][name])
        for n, best, slowest in ends:
            bar = [(math.log2(n), math.log10(best)), (math.log2(n), math.log10(slowest))]
            axes.curve(bar, colour, width=1)
        axes.curve(
            [(math.log2(n), math.log10(t)) for n, t in zip(lengths, rows[name])], colour, dash, 2.2
        )
        d.line([(40 + 190 * i, 22), (68 + 190 * i, 22)], colour, 2.2, dash)
        d.words(74 + 190 * i, 26, say(f"cost_{name}"))
    for (name, colour, _), row in zip(styles[1:], (0, 1)):
        found = data["crossing"][name]
        at = math.log2(found["measured"])
        left = max(i for i, n in enumerate(lengths) if n <= found["measured"])
        logs = [math.log10(t) for t in rows["feed_forward"][left : left + 2]]
        height = logs[0] + (at - math.log2(lengths[left])) * (logs[1] - logs[0])
        bar = [(math.log2(n), height) for n in found["rounds"]]
        axes.curve(bar, colour, width=5)
        x, y = axes.at(at, height)
        d.line([(x, y), (x, 306)], colour, 1)
        d.words(x - 5, 272 + 16 * row, say("cost_measured").format(f"{found['measured']:,}"),
                "end", 11, colour)  # fmt: skip
        x = axes.at(math.log2(found["counted"]), 0)[0]
        d.line([(x, 56), (x, 306)], colour, 1, "3 3")
        d.words(x - 5, 68 + 16 * row, say("cost_counted").format(f"{found['counted']:,}"),
                "end", 11, colour)  # fmt: skip
    axes.names(say("length"), say("cost_milliseconds"), gap=44)
    return d.text()


def joined(data: Any, say: Say) -> str:
    d = Drawing(560, 290, say("joined"))
    axes = Axes(d, (60, 30, 470, 190), (0.5, 8.5), (0, 9.5))
    axes.ticks({n: str(n) for n in data["together"]}, {n: str(n) for n in (0, 2, 4, 6, 8)})
    axes.curve([(0.5, math.log(6000)), (8.5, math.log(6000))], GREY, "3 3", 1.2)
    d.words(526, axes.at(0, math.log(6000))[1] - 5, say("joined_guess"), "end", 11, GREY)
    axes.curve(list(zip(data["together"], data["loss"])), BLUE, width=2.2)
    rows = zip(data["together"], data["loss"], data["low"], data["high"])
    for n, loss, low, high in rows:
        axes.curve([(n, low), (n, high)], INK, width=1.5)
        x, y = axes.at(n, low)
        d.words(x, y + 16, f"{loss:.2f}", "middle", 11)
    axes.names(say("joined_axis"), say("joined_loss"))
    return d.text()


def stacks(_: Any, say: Say) -> str:
    """Draw stacks. The width is the number of tokens that pass, and the height is the number of
    parameters, in d², so the area is the work."""
    d, unit, floor = Drawing(640, 250, say("stacks")), 5, 190
    boxes = (
        (60, 20, 14, "of_source", BLUE, "white"),
        (170, 20, 14, "of_target", BLUE, "white"),
        (390, 40, 28, "of_one_stack", ORANGE, INK),
    )
    for x, tokens, parameters, name, colour, ink in boxes:
        width, height = unit * tokens, unit * parameters
        d.rect(x, floor - height, width, height, colour, GREY, 1)
        middle = x + width / 2
        d.words(middle, floor - height / 2 - 4, say(name), "middle", 12, ink, bold=True)
        d.words(middle, floor - height / 2 + 14, f"{tokens} · {parameters}", "middle", 12, ink)
        d.words(middle, floor + 18, say("n_tokens").format(tokens), "middle", 11, GREY)
    d.words(165, 236, "280 d² + 280 d² = 560 d²", "middle", 13, bold=True)
    d.words(490, 236, "1,120 d²", "middle", 13, bold=True)
    d.words(320, 22, say("stacks_legend"), "middle", 12, GREY)
    return d.text()


# ── chapter 12 ──────────────────────────────────────────────────────────────────────────────────


def answers(_: Any, say: Say) -> str:
    d = Drawing(660, 150, say("answers"))
    tokens = ["7", "2", "9", "4", "=", "7", "4", "⟨end⟩"]
    for row, (label, line) in enumerate((("inputs", tokens[:-1]), ("targets", tokens[1:]))):
        y = 40 + 48 * row
        d.words(72, y + 19, say(label), "end", 12)
        for i, token in enumerate(line):
            counted = row == 1 and i >= 4
            fill = LIGHT if row == 0 else BLUE if counted else "url(#hatch)"
            d.rect(86 + 80 * i, y, 66, 28, fill, GREY, 1, 4)
            d.words(119 + 80 * i, y + 19, token, "middle", 12, "white" if counted else INK)
            if row == 0:
                d.line([(119 + 80 * i, y + 28), (119 + 80 * i, y + 48)], GREY, 1.2, arrow=True)
    d.words(330, 22, say("answers_legend"), "middle", 12, GREY)
    return d.text()


# ── chapter 13 ──────────────────────────────────────────────────────────────────────────────────


def lens(data: Any, say: Say) -> str:
    """Draw one bar for each stage of the stream, with the token that the stage would give."""
    d = Drawing(640, 60 + 22 * len(data["stages"]), say("lens"))
    for i, (stage, chance) in enumerate(zip(data["stages"], data["chances"])):
        y, pieces = 16 + 22 * i, stage.split(".")
        part = pieces[-2].removeprefix("around_") if "layers" in stage else "embedding"
        label = say("of_layer").format(pieces[2]) if "layers" in stage else ""
        d.words(250, y + 13, label + say(part), "end", 12)
        d.rect(260, y, max(260 * chance, 0.8), 17, BLUE, GREY, 0.5)
        d.words(268 + 260 * chance, y + 13, f"{chance:.2f}", size=11)
        d.words(590, y + 13, data["best"][i], "middle", 12)
    low = 36 + 22 * len(data["stages"])
    d.words(390, low, say("lens_axis"), "middle", 11, GREY)
    d.words(590, low, say("lens_best"), "middle", 11, GREY)
    return d.text()


def needed(data: Any, say: Say) -> str:
    """Draw four tables of the same sixteen heads."""
    d = Drawing(960, 270, say("needed"))
    for n, kind in enumerate(("zero", "mean", "this", "week")):
        x = 66 + 228 * n
        d.words(x + 84, 24, say(f"needed_{kind}"), "middle", 12, bold=True)
        rows = [say("layer").format(i) for i in range(4)] if n == 0 else []
        columns = [say("head").format(i) for i in range(4)]
        grid(d, x, 56, 42, data[kind], rows, columns, size=11, numbers=True)
        unit = "needed_share" if kind == "week" else "needed_nats"
        d.words(x + 84, 246, say(unit), "middle", 11, GREY)
    return d.text()


def circuit(_: Any, say: Say) -> str:
    """Draw the weights of the two heads that the page builds by hand."""
    text = "^abcdabc"
    n, cell = len(text), 24
    d = Drawing(560, 290, say("circuit"))
    for left, name in ((60, "previous"), (330, "induction")):
        d.words(left + n * cell / 2, 24, say(f"circuit_{name}"), "middle", 13, bold=True)
        weights: list[list[float | None]] = []
        for i in range(n):
            earlier = [j for j in range(1, i + 1) if text[j - 1] == text[i]]
            seen = [max(i - 1, 0)] if name == "previous" else earlier or list(range(i + 1))
            weights.append([1 / len(seen) if j in seen else 0.0 for j in range(i + 1)])
            weights[-1] += [None] * (n - i - 1)
        grid(d, left, 56, cell, weights, list(text), list(text), top=1.0, size=12)
    d.words(280, 276, say("circuit_legend"), "middle", 11, GREY)
    return d.text()


DRAWN: dict[str, tuple[str | None, Callable[[Any, Say], str]]] = {
    "00-leak": ("leak", leak),
    "00-positions": ("one_sequence", one_sequence),
    "00b-merges": (None, merges),
    "00b-vocabulary": ("vocabulary", vocabulary),
    "01-turn": ("turn", turn),
    "01-entropy": ("entropy", entropy),
    "01-distance": ("distance", distance),
    "02-masks": (None, masks),
    "02-wrong": (None, wrong_masks),
    "02-head": ("heads", causal_head),
    "03-heads": ("heads", heads),
    "03-walk": (None, walk),
    "03-worth": ("worth", worth),
    "04-table": ("table", table),
    "04-products": ("table", products),
    "04-copies": ("both", without_positions),
    "05-norms": (None, together),
    "05-placement": (None, placements),
    "05-cosine": ("depth", cosine),
    "07-diagonal": ("copy", diagonal),
    "07-wiring": (None, wiring),
    "05-depths": ("depths", depths),
    "06-shares": ("shares", shares),
    "06-norms": ("norms", norms),
    "08-shift": (None, shift),
    "08-training": ("training", training),
    "08-schedule": (None, schedules),
    "09-heads": ("translation", translation),
    "10-candidates": ("candidates", candidates),
    "10-beams": ("beams", beams),
    "10-cache": (None, cache),
    "11-window": (None, window),
    "11-cost": (None, cost),
    "11-time": ("cost_in_time", cost_in_time),
    "11-stacks": (None, stacks),
    "11-joined": ("joined", joined),
    "12-answers": (None, answers),
    "13-lens": ("inside", lens),
    "13-heads": ("inside", needed),
    "13-circuit": (None, circuit),
}
