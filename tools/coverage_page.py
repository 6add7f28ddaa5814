"""Writes the table of docs/*/studies.md, from the result file that `python -m benchmarks.intervals`
wrote.

python -m tools.coverage_page      # writes it into both languages' pages
"""

import json
from itertools import product
from pathlib import Path

from tools.result import FOLDER

ROOT = Path(__file__).parent.parent
PAGES = {language: ROOT / "docs" / language / "studies.md" for language in ("en", "zh")}
WORDS = {
    "en": (
        "| noise | interval | 3 seeds | 5 seeds | 10 seeds |",
        {
            "seeds dominate": "seeds dominate",
            "sentences dominate": "sentences dominate",
            "both alike": "both alike",
        },
        {"normal": "", "skewed": ", skewed"},
        {
            "percentile bootstrap of seeds": "percentile bootstrap of seeds",
            "t over seeds": "Student's t, over seeds",
            "t over seeds and sentences": "**Student's t, over seeds and sentences**",
        },
    ),
    "zh": (
        "| 噪声 | 区间 | 3 个种子 | 5 个种子 | 10 个种子 |",
        {
            "seeds dominate": "种子为主",
            "sentences dominate": "句子为主",
            "both alike": "两者相当",
        },
        {"normal": "", "skewed": "，偏态"},
        {
            "percentile bootstrap of seeds": "对种子做百分位自助法",
            "t over seeds": "仅对种子的 t 区间",
            "t over seeds and sentences": "**对种子和句子的 t 区间**",
        },
    ),
}


def with_coverage(text: str, language: str) -> str:
    """Return a page with the table that the result file gives."""
    rows = json.loads((FOLDER / "intervals.json").read_text(encoding="utf-8"))["rows"]
    heads, cases, kinds_of_effects, intervals = WORDS[language]
    lines = [heads, "|---" * (heads.count("|") - 1) + "|"]
    for case, effects, interval in product(cases, kinds_of_effects, intervals):
        same = [
            row
            for row in rows
            if (row["case"], row["effects"], row["interval"]) == (case, effects, interval)
        ]
        shown = " | ".join(f"{row['coverage']:.1%}" for row in same)
        lines.append(
            f"| {cases[case]}{kinds_of_effects[effects]} | {intervals[interval]} | {shown} |"
        )
    before, rest = text.split("<!-- coverage -->\n")
    after = rest.split("<!-- end of coverage -->")[1]
    table = "\n".join(lines)
    return f"{before}<!-- coverage -->\n{table}\n<!-- end of coverage -->{after}"


def main() -> None:
    for language, path in PAGES.items():
        path.write_text(with_coverage(path.read_text("utf-8"), language), encoding="utf-8")


if __name__ == "__main__":
    main()
