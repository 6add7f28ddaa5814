"""Writes benchmarks/README.md, from the first sentences of the files' docstrings.

python -m tools.benchmarks_index
"""

import ast
import re
from pathlib import Path

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
PAGE = BENCHMARKS / "README.md"
HEAD = """# Measurements

Each script writes its result file into [results](results). To repeat a measurement, run \
`python -m benchmarks.NAME`; the docstring of the script explains its options. Files without a \
command of their own are parts of others. This page is made from the first sentence of each file: \
`python -m tools.benchmarks_index`.

| file | what it measures, or holds |
|---|---|
"""


def first_sentence(file: Path) -> str:
    """Return the first sentence of a module's docstring."""
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    match = re.match(r".*?[.?!](?= |$)", paragraph)
    return (paragraph if match is None else match[0]).replace("|", r"\|")


def index() -> str:
    """Return the page."""
    files = {f"{file.stem}.py": file for file in BENCHMARKS.glob("*.py")}
    files |= {f"{file.parent.name}/": file for file in BENCHMARKS.glob("*/__init__.py")}
    rows = [
        f"| [{name}]({name}) | {first_sentence(file)} |\n"
        for name, file in sorted(files.items())
        if name != "__init__.py"
    ]
    return HEAD + "".join(rows)


if __name__ == "__main__":
    PAGE.write_text(index(), encoding="utf-8")
