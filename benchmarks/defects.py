"""How well defects of a corpus are found: each kind is planted at a known rate into real text, by
tests/data/damage.py, which knows nothing of the detectors, and in a hundred lines by hand.

    python -m benchmarks.defects            # a line of results/defects.jsonl, and a table
"""

import argparse
import json
from typing import Any

from clearhead.config.data import DEFECTS
from clearhead.environment import data_folder
from tests.data.damage import RATES, captions, damaged, everyday, news, small
from tests.data.judging import PRECISION, RECALL, found_in, judge


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--show", metavar="KIND", choices=DEFECTS, help="the lines that went wrong")
    parser.add_argument("--keep", action="store_true", help="add the line to the result file")
    arguments = parser.parse_args()
    root = data_folder()
    texts = {"by hand": small()}
    for corpus in (captions(root, 8000), everyday(root, 8000), news(root)):
        texts[corpus.name] = (damaged(corpus, RATES, seed=1), corpus.held_out)
    line: dict[str, Any] = {}
    for name, (lines, held_out) in texts.items():
        found = found_in(lines, held_out)
        line[name] = judge(lines, held_out, found)
        for kind, result in line[name].items():
            low = result["precision"] < PRECISION or result["recall"] < RECALL
            print(
                f"{name:<10}{kind:<10}{result['planted']:>5} planted, {result['reported']:>5} "
                f"reported, precision {result['precision']:.3f}, recall {result['recall']:.3f}"
                f"{'  BELOW THE GOAL' if low else ''}  {result['missed'] or ''} "
                f"{result['wrong'] or ''}"
            )
        for at, each in enumerate(lines) if arguments.show else ():
            if (each.kind == arguments.show) != (found.get(at) == arguments.show):
                print(
                    f"  {at + 1} {each.kind} {each.way} → {found.get(at)}: {each.source[:90]} | "
                    f"{each.target[:90]}"
                )
    if arguments.keep:
        from tools.result import FOLDER, circumstances  # which needs torch

        about = {key: value for key, value in circumstances().items() if key != "command"}
        with (FOLDER / "defects.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({**about, "found": line}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
