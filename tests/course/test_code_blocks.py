"""The code that the pages of the course show is the code of the package."""

import re
from pathlib import Path

import pytest

from tools.course.code_blocks import BLOCK, PAGES, ROOT, code_of, with_code


def ids(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_the_page_shows_the_code_as_it_is(page: Path):
    text = page.read_text(encoding="utf-8")
    assert with_code(text) == text, "run: python -m tools.course code"
    assert len(BLOCK.findall(text)) == text.count("<!-- code:")
    assert "{literalinclude}" not in text  # which a repository's own pages do not show


def test_every_chapter_shows_some():
    for page in PAGES:
        if re.match(r"\d\db?-", page.name):
            assert BLOCK.search(page.read_text(encoding="utf-8")), page


def test_a_method_is_not_indented():
    code = code_of("src/clearhead/parts/residual.py", "Residual.forward")
    assert code.startswith("def forward(") and "\n    " in code
