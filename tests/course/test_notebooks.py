"""Each chapter as a notebook: the same code, and nothing that must be fetched."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("sphinx")
ROOT = Path(__file__).parent.parent.parent
CHAPTERS = sorted((ROOT / "docs").glob("??/course/[0-9bw]*.md"))


@pytest.fixture(scope="module")
def notebooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "notebooks", ROOT / "docs" / "_site" / "notebooks.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", CHAPTERS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_a_chapter_is_a_notebook_with_its_code_and_its_pictures(page: Path, notebooks: ModuleType):
    made, text = notebooks.as_notebook(page), page.read_text(encoding="utf-8")
    assert made["nbformat"] == 4
    code = ["".join(c["source"]) for c in made["cells"] if c["cell_type"] == "code"]
    assert code == [b.strip() for b in re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)]
    texts = ["".join(c["source"]) for c in made["cells"] if c["cell_type"] == "markdown"]
    assert all(cell.count("<details>") == cell.count("</details>") for cell in texts)
    prose = "".join(texts)
    assert "<!-- code:" not in prose
    outputs = ["".join(c["outputs"][0]["text"]) for c in made["cells"] if c.get("outputs")]
    assert outputs == re.findall(
        r"^```python\n(?:(?!^```).)*^```\s+```text\n(.*?)^```", text, re.M | re.S
    )
    assert ".svg" not in prose and prose.count("data:image/svg+xml") == text.count(".svg)")


def test_every_chapter_is_there():
    assert len(CHAPTERS) >= 14
