"""The table of docs/speed.md, from the result file that `python -m benchmarks.step` wrote.

python -m benchmarks.speed_page      # writes it into both languages' pages
"""

import json
import re
from pathlib import Path
from typing import Any

from benchmarks.result import FOLDER

DOCS = Path(__file__).parent.parent / "docs"
PAGES = [DOCS / "speed.md", DOCS / "speed.zh-CN.md"]
TABLE = re.compile(r"(?<=<!-- step.json -->\n).*?(?=<!-- end -->)", flags=re.S)
HEADINGS = {
    "speed.md": ("network", "dropout", "ms", "of the matmul peak"),
    "speed.zh-CN.md": ("网络", "dropout", "毫秒", "占矩阵乘法峰值"),
}


def table(result: dict[str, Any], page: str) -> str:
    network, dropout, ms, peak = HEADINGS[page]
    rivals = list(result["steps"][0]["our_speed_relative_to"])
    lines = [
        f"| {network} | {dropout} | {' | '.join(rivals)} | {ms} | {peak} |",
        "|---|---|" + "---|" * (len(rivals) + 2),
    ]
    for row in result["steps"]:
        ratios = " | ".join(f"{row['our_speed_relative_to'][rival]:.2f}" for rival in rivals)
        time, share = row["milliseconds"]["clearhead"], row["utilisation_of_matmul_peak"]
        cells = f"{row['setting']} | {row['dropout']} | {ratios} | {time:.0f} | {share:.0%}"
        lines.append(f"| {cells} |")
    return "\n".join(lines) + "\n"


def with_table(text: str, result: dict[str, Any], page: str) -> str:
    new, n = TABLE.subn(table(result, page).replace("\\", r"\\"), text)
    assert n == 1, f"{page} has lost its markers"
    return new


def main() -> None:
    result = json.loads((FOLDER / "step.json").read_text(encoding="utf-8"))
    for path in PAGES:
        text = with_table(path.read_text(encoding="utf-8"), result, path.name)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
