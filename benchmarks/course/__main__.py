"""Measures and draws the pictures of the course."""

import argparse
import json
import sys
from pathlib import Path

from benchmarks.course.pictures import DATA, FOLDER, pictures, read_data


def main(arguments: list[str]) -> None:
    """`measure [NAME…]`, `code`, `answers [FOLDER]`, or nothing: draw."""
    if arguments[:1] == ["code"]:
        from benchmarks.course import code_blocks

        return code_blocks.write()
    if arguments[:1] == ["answers"]:
        from benchmarks.course import answers

        parser = argparse.ArgumentParser(prog="python -m benchmarks.course answers")
        parser.add_argument("folder", type=Path, nargs="?", default=answers.BLIND)
        parser.add_argument("--result", metavar="NAME")
        chosen = parser.parse_args(arguments[1:])
        sys.exit(answers.main(chosen.folder, chosen.result))
    if arguments[:1] == ["measure"]:
        from benchmarks.course.measure import QUICK, SLOW

        known, data = {**QUICK, **SLOW}, read_data()
        for name in arguments[1:] or QUICK:
            data[name] = known[name]()
            print(f"measured {name}")
        lines = [
            f"{json.dumps(k)}: {json.dumps(data[k], ensure_ascii=False)}" for k in sorted(data)
        ]
        DATA.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    for name, text in pictures(read_data()).items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        print(f"drew {FOLDER / name}")


if __name__ == "__main__":
    main(sys.argv[1:])
