"""Each chapter as a notebook, which needs nothing but the package: code that runs becomes cells
with what they print, code that is shown stays text, pictures are inside."""

import base64
import json
import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

CODE = re.compile(r"^```python\n(.*?)^```\n", flags=re.M | re.S)
OUTPUT = re.compile(r"\A\s*```text\n(.*?)^```\n", flags=re.M | re.S)
MARK = re.compile(r"^<!-- code: .*? -->\n", flags=re.M)
FOLD = re.compile(r"^<details><summary>(.*?)</summary>\n(.*?)^</details>\n", flags=re.M | re.S)
PICTURE = re.compile(r"!\[([^\]]*)\]\((\S+?\.svg)\)")


def as_notebook(page: Path) -> dict[str, Any]:
    """The page in the format of Jupyter. What a cell prints on the page is its output."""
    text = FOLD.sub(_without_fold, page.read_text(encoding="utf-8"))
    cells: list[dict[str, Any]] = []
    for number, piece in enumerate(CODE.split(text)):
        if number % 2:
            content = {"cell_type": "code", "execution_count": None, "outputs": []}
        else:
            if cells and (printed := OUTPUT.match(piece)):
                lines = printed[1].splitlines(keepends=True)
                stream = {"output_type": "stream", "name": "stdout", "text": lines}
                cells[-1]["outputs"] = [stream]
                piece = piece[printed.end() :]
            piece = PICTURE.sub(lambda m: _inside(m[1], page.parent / m[2]), MARK.sub("", piece))
            content = {"cell_type": "markdown"}
        if piece.strip():
            lines = piece.strip().splitlines(keepends=True)
            cells.append({"id": f"cell-{number}", "metadata": {}, "source": lines, **content})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def _without_fold(fold: re.Match[str]) -> str:
    """A fold around a code cell would begin in one cell and end in another."""
    return f"**{fold[1]}**\n{fold[2]}" if CODE.search(fold[2]) else fold[0]


def _inside(words: str, picture: Path) -> str:
    content = base64.b64encode(picture.read_bytes()).decode()
    return f"![{words}](data:image/svg+xml;base64,{content})"


def write_notebooks(app: Sphinx, error: Exception | None) -> None:
    """Beside the pages of the chapters."""
    if error is None and app.builder.name == "html":
        for page in sorted((Path(app.srcdir) / "course").glob("[0-9bw]*.md")):
            file = Path(app.outdir) / "course" / f"{page.stem}.ipynb"
            text = json.dumps(as_notebook(page), ensure_ascii=False, indent=1)
            file.write_text(text + "\n", encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("build-finished", write_notebooks)
    return {"parallel_read_safe": True}
