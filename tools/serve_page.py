"""Writes the tables of docs/*/serving.md, from the result files that `python -m benchmarks.serve`
wrote.

python -m tools.serve_page      # writes them into both languages' pages
"""

import json
import math
import re
from pathlib import Path
from typing import Any

from tools.result import FOLDER

DOCS = Path(__file__).parent.parent / "docs"
PAGES = {language: DOCS / language / "serving.md" for language in ("en", "zh")}
A_DAY = 100_000_000
"""Sentences, for the last table."""
N_CLIENTS = 32
"""How many ask at once there."""
HEADINGS = {
    "en": (
        ("model", "clients", "sentences per core second", "of CTranslate2 alone", "p50", "p95",
         "p99", "memory"),
        ("model", "sentences per core second", "cores", "workers' memory"),
        ("model", "the long request", "single sentences alone: p50", "p99",
         "with the long request: p50", "p99", "ratio of the two p99"),
        "No figures yet: `python -m benchmarks.serve load` and `fair NAME=MODEL` measure them.\n",
    ),
    "zh": (
        ("模型", "客户端数", "每核每秒句数", "相对单独的 CTranslate2", "p50", "p95", "p99", "内存"),
        ("模型", "每核每秒句数", "核数", "工作进程内存合计"),
        ("模型", "长请求", "只有单句：p50", "p99", "同时有长请求：p50", "p99", "p99 之比"),
        "尚无数据：用 `python -m benchmarks.serve load` 和 `fair NAME=MODEL` 测量。\n",
    ),
}  # fmt: skip
LONG_REQUESTS = {
    "en": {"sentences": "sentences", "one letter": "20,000 times the letter a"},
    "zh": {"sentences": "普通句子", "one letter": "20,000 个字母 a"},
}


def results(part: str) -> dict[str, dict[str, Any]]:
    """Return the results by model."""
    return {
        path.stem.removeprefix(f"serve-{part}-"): json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(FOLDER.glob(f"serve-{part}-*.json"))
    }


def load_table(language: str) -> str:
    headings, _, _, nothing = HEADINGS[language]
    rows = [
        f"| {name} | {row['clients']} | {row['sentences_per_processor_second']:,.0f} "
        f"| {_of_the_fastest(content, row):.2f} | {row['p50_ms']:,.0f} ms "
        f"| {row['p95_ms']:,.0f} ms | {row['p99_ms']:,.0f} ms | {row['resident_mb']:,} MB |"
        for name, content in results("load").items()
        for row in content.get("clients", [])
    ]
    return _table(headings, rows) if rows else nothing


def _of_the_fastest(content: dict[str, Any], row: dict[str, Any]) -> float:
    """Compare a row with CTranslate2 alone, in the batches that are fastest for it."""
    return row["sentences_per_processor_second"] / max(content["offline"].values())


def day_table(language: str) -> str:
    _, headings, _, nothing = HEADINGS[language]
    rows: list[str] = []
    for name, content in results("load").items():
        for row in content.get("clients", []):
            if row["clients"] != N_CLIENTS:
                continue
            rate = row["sentences_per_processor_second"]
            cores = math.ceil(A_DAY / 86_400 / rate)
            memory = cores * row["resident_mb"] / 1000
            rows.append(f"| {name} | {rate:,.0f} | {cores:,} | {memory:,.0f} GB |")
    return _table(headings, rows) if rows else nothing


def fair_table(language: str) -> str:
    _, _, headings, nothing = HEADINGS[language]
    rows: list[str] = []
    for name, content in results("fair").items():
        measured, times = content["single_sentences_ms"], content["p99_beside_of_alone"]
        for kind, title in LONG_REQUESTS[language].items():
            shown = " | ".join(
                f"{measured[which][key]:,.0f} ms"
                for which in ("alone", kind)
                for key in ("p50_ms", "p99_ms")
            )
            rows.append(f"| {name} | {title} | {shown} | {times[kind]:.1f} |")
    return _table(headings, rows) if rows else nothing


def _table(headings: tuple[str, ...], rows: list[str]) -> str:
    head = [f"| {' | '.join(headings)} |", "|" + "---|" * len(headings)]
    return "\n".join([*head, *rows]) + "\n"


def with_tables(text: str, language: str) -> str:
    for name, table in (("load", load_table), ("fair", fair_table), ("day", day_table)):
        text = re.sub(
            rf"(?<=<!-- {name} -->\n\n).*?(?=\n<!-- end -->)",
            lambda _, table=table: table(language),
            text,
            flags=re.S,
        )
    return text


def main() -> None:
    for language, page in PAGES.items():
        text = with_tables(page.read_text(encoding="utf-8"), language)
        page.write_text(text, encoding="utf-8")
        print(page)


if __name__ == "__main__":
    main()
