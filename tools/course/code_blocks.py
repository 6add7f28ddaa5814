"""Puts code of the package into the pages of the course, where every reader of Markdown sees it.

`<!-- code: FILE NAME -->` before a block says what the block shows: a function, a class or a method
of the file, or without a name the whole file. `python -m tools.course code` writes the blocks
again; a test compares them."""

import ast
import re
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted((ROOT / "docs").glob("??/course/*.md"))
BLOCK = re.compile(r"^(<!-- code: (\S+)(?: (\S+))? -->\n```\w+\n)(.*?)(^```\n)", re.M | re.S)


def with_code(text: str) -> str:
    """Return the page with the code as it is now."""
    return BLOCK.sub(lambda block: block[1] + code_of(block[2], block[3]) + block[5], text)


def code_of(file: str, name: str | None) -> str:
    """Return a function, a class or a method (`Class.method`), not indented; or the whole file."""
    text = (ROOT / file).read_text(encoding="utf-8")
    if name is None:
        return text
    body: list[ast.stmt] = ast.parse(text).body
    node: Any = None
    for part in name.split("."):
        node = next(each for each in body if getattr(each, "name", "") == part)
        body = node.body
    lines = text.splitlines()[node.lineno - 1 : node.end_lineno]
    return textwrap.dedent("\n".join(lines)) + "\n"


def write() -> None:
    """Write every page of the course."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if (new := with_code(text)) != text:
            page.write_text(new, encoding="utf-8")
            print(f"wrote {page}")
