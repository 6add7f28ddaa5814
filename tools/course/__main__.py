"""Measures and draws the pictures of the course."""

import json
import sys

from tools.course.pictures import DATA, FOLDER, pictures, read_data


def main(arguments: list[str]) -> None:
    """Run `measure [NAME…]` or `code`; without an argument, draw."""
    if arguments[:1] == ["code"]:
        from tools.course import code_blocks

        return code_blocks.write()
    if arguments[:1] == ["measure"]:
        from tools.course.measure import QUICK, SLOW

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
