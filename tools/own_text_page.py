"""Writes the table of docs/*/recipes.md, from the lines that `python -m benchmarks.own_text` wrote,
with --optimizers and without.

python -m tools.own_text_page      # writes it into both languages' pages
"""

import json
import re
from pathlib import Path
from statistics import mean, stdev

from tools.result import FOLDER

LINES = FOLDER / "own_text.jsonl"
OPTIMIZERS = FOLDER / "own_text_optimizers.jsonl"
DOCS = Path(__file__).parent.parent / "docs"
PAGES = {language: DOCS / language / "recipes.md" for language in ("en", "zh")}
TABLE = re.compile(r"(?<=<!-- own text -->\n).*?(?=<!-- end of own text -->)", flags=re.S)
HEADINGS = {
    "en": ("text", "score", "{} min", "best of {} by hand, 10 min", "Muon, 10 min"),
    "zh": ("文本", "得分", "{} 分钟", "手工调整 {} 次中最好的，10 分钟", "Muon，10 分钟"),
}
JOBS = {  # the score that counts, and the title in the order of HEADINGS
    "pairs-1k": ("BLEU", "1,000 pairs, German to English", "1,000 个句对，德译英"),
    "pairs-5k": ("BLEU", "5,000 pairs, German to English", "5,000 个句对，德译英"),
    "pairs-27k": ("BLEU", "27,000 pairs, English to Chinese", "27,000 个句对，英译中"),
    "paragraphs-20k": (
        "BLEU",
        "20,000 paragraphs, English to Chinese",
        "20,000 个段落，英译中",
    ),
    "text": ("nats_per_byte", "one Chinese novel", "一部中文小说"),
    "labels": ("accuracy", "10,000 labelled lines", "10,000 行带标签的文本"),
}
SCORES = {
    "BLEU": ("BLEU", "BLEU"),
    "nats_per_byte": ("nats a byte (less is better)", "奈特/字节（越小越好）"),
    "accuracy": ("right, %", "准确率 %"),
}


def table(language: str) -> str:
    """Make the table. Rows are jobs, and columns are core minutes. A run that has not been made is
    an empty cell, and several seeds are a mean with their standard deviation."""
    i = list(HEADINGS).index(language)
    text, score, minutes, by_hand, with_muon = HEADINGS[language]
    lines, others = (
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for path in (LINES, OPTIMIZERS)
    )
    n_by_hand = len({line["setting"] for line in lines} - {"new"})
    times = sorted({line["minutes"] for line in lines})
    head = [text, score, *(minutes.format(f"{time:g}") for time in times)]
    rows = [[*head, *([by_hand.format(n_by_hand)] if n_by_hand else []), with_muon]]
    rows.append(["---"] * len(rows[0]))
    for job, (name, *titles) in JOBS.items():
        mine = [line for line in lines if line["job"] == job]
        chosen = [line for line in mine if line["setting"] == "new"]
        cells = [
            _shown(name, [line["scores"][name] for line in chosen if line["minutes"] == time])
            for time in times
        ]
        if n_by_hand:
            tried = [line["scores"][name] for line in mine if line["setting"] != "new"]
            best = min if name == "nats_per_byte" else max
            cells.append(_shown(name, [best(tried)] if tried else []))
        muon = [line for line in others if (line["job"], line["setting"]) == (job, "muon")]
        cells.append(_shown(name, [line["scores"][name] for line in muon]))
        rows.append([titles[i], SCORES[name][i], *cells])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _shown(name: str, values: list[float]) -> str:
    digits = 3 if name == "nats_per_byte" else 1
    spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{spread}" if values else ""


def main() -> None:
    for language, path in PAGES.items():
        page = path.read_text(encoding="utf-8")
        assert TABLE.search(page), f"{path} has lost its markers"
        path.write_text(TABLE.sub(lambda _: table(language), page), encoding="utf-8")  # noqa: B023


if __name__ == "__main__":
    main()
