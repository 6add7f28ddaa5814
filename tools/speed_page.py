"""Writes the tables of docs/*/speed.md, from the result files that `python -m benchmarks.step` and
`python -m benchmarks.decode` wrote.

python -m tools.speed_page      # writes it into both languages' pages
"""

import json
import re
from pathlib import Path
from typing import Any

from tools.result import FOLDER

DOCS = Path(__file__).parent.parent / "docs"
PAGES = {language: DOCS / language / "speed.md" for language in ("en", "zh")}
HEADINGS = {
    "en": ("network", "dropout", "ms", "of the matmul peak"),
    "zh": ("网络", "dropout", "毫秒", "占矩阵乘法峰值"),
}
DECODE_HEADINGS = {
    "en": ("network", "input", "search", "tokens/s", "of the matrix products", "engine", "int8"),
    "zh": ("网络", "输入", "搜索", "词元/秒", "相对矩阵乘法", "引擎", "int8"),
}


def step_table(result: dict[str, Any], language: str) -> str:
    network, dropout, ms, peak = HEADINGS[language]
    rivals = list(result["steps"][0]["our_speed_relative_to"])
    lines = [
        f"| {network} | {dropout} | {' | '.join(rivals)} | {ms} | {peak} |",
        "|---|---|" + "---|" * (len(rivals) + 2),
    ]
    for row in result["steps"]:
        best, median = row["our_speed_relative_to"], row["our_median_speed_relative_to"]
        ratios = " | ".join(f"{best[rival]:.2f} / {median[rival]:.2f}" for rival in rivals)
        time, share = row["milliseconds"]["clearhead"], row["utilisation_of_matmul_peak"]
        cells = f"{row['setting']} | {row['dropout']} | {ratios} | {time:.0f} | {share:.0%}"
        lines.append(f"| {cells} |")
    return "\n".join(lines) + "\n"


def decode_table(result: dict[str, Any], language: str) -> str:
    network, given, search, speed, bound, engine, int8 = DECODE_HEADINGS[language]
    rivals = list(result["decoding"][0]["our_speed_relative_to"])
    lines = [
        f"| {network} | {given} | {search} | {speed} | {' | '.join(rivals)} | {bound} "
        f"| {engine} | {int8} |",
        "|---|---|---|---|" + "---|" * (len(rivals) + 3),
    ]
    for row in result["decoding"]:
        ratios = " | ".join(f"{row['our_speed_relative_to'][rival]:.2f}" for rival in rivals)
        share = row.get("share_of_matmul_bound")
        cells = f"{row['setting']} | {row['input']} | {row['search']}"
        cells += f" | {row['tokens_per_second']['clearhead']:,.0f} | {ratios}"
        whole = row.get("whole_path_relative_to_ours", {})
        last = [share, whole.get("float32"), whole.get("int8")]
        shown = " | ".join("" if each is None else f"{each:.2f}" for each in last)
        lines.append(f"| {cells} | {shown} |")
    return "\n".join(lines) + "\n"


TABLES = {
    "step.json": step_table,
    "decode.json": decode_table,
    "decode_one_thread.json": decode_table,
}


def with_tables(text: str, language: str) -> str:
    """Return the page with every table made anew from its result file."""
    for file, table in TABLES.items():
        result = json.loads((FOLDER / file).read_text(encoding="utf-8"))
        place = re.compile(rf"(?<=<!-- {re.escape(file)} -->\n).*?(?=<!-- end -->)", flags=re.S)
        text, n = place.subn(table(result, language).replace("\\", r"\\"), text)
        assert n == 1, f"the {language} page has lost its markers of {file}"
    return text


def main() -> None:
    for language, path in PAGES.items():
        path.write_text(with_tables(path.read_text("utf-8"), language), encoding="utf-8")


if __name__ == "__main__":
    main()
