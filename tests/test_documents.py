"""What the documents say, runs; what they say in English, they say in Chinese."""

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import clearhead
from tools import serve_page
from tools.benchmarks_index import PAGE as BENCHMARKS_PAGE
from tools.benchmarks_index import index
from tools.options_page import PAGE as OPTIONS_PAGE
from tools.options_page import with_options
from tools.speed_page import PAGES, with_tables

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
SEED_OF_A_NEW_PROCESS = 67280421310721
ENGLISH = [ROOT / "README.md", *sorted((DOCS / "en").rglob("*.md"))]


def chinese(path: Path) -> Path:
    if path.parent == ROOT:
        return path.with_suffix(".zh-CN.md")
    return DOCS / "zh" / path.relative_to(DOCS / "en")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.M | re.S)


def without_comments(code: str) -> list[str]:
    """Comments and docstrings are prose, and translated; the code around them is not."""
    code = re.sub(r'^ *""".*?"""$', "", code, flags=re.M | re.S)
    lines = (re.sub(r"\s*#.*", "", line) for line in code.splitlines())
    return [line for line in lines if line.strip()]


def without_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```", "[code]", text, flags=re.M | re.S)


def shape(text: str) -> list[str]:
    """The skeleton of a page: its headings' levels, its lists, its tables' rows, its blocks."""
    prose = without_blocks(text)
    marks = (re.match(r"#+ |- |\||\[code\]", line) for line in prose.splitlines())
    return [mark.group() for mark in marks if mark]


def ids(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_the_two_languages_have_the_same_tree_of_pages():
    assert {chinese(path) for path in ENGLISH} == {
        ROOT / "README.zh-CN.md",
        *(DOCS / "zh").rglob("*.md"),
    }


@pytest.mark.parametrize("path", ENGLISH, ids=ids)
def test_the_chinese_page_has_the_shape_of_the_english_one(path: Path):
    assert shape(path.read_text(encoding="utf-8")) == shape(chinese(path).read_text("utf-8"))


@pytest.mark.parametrize("path", ENGLISH, ids=ids)
@pytest.mark.parametrize("language", ["python", "bash", "console"])
def test_the_chinese_page_has_the_code_of_the_english_one(path: Path, language: str):
    """Only the language that a command is asked to speak may differ, and the text that the READMEs
    train on; .ci/wheel runs the blocks of both."""
    english, other = (
        re.sub(" --language (en|zh)", "", page.read_text(encoding="utf-8"))
        for page in (path, chinese(path))
    )
    for one, two in zip(blocks(english, language), blocks(other, language), strict=True):
        if path.parent == ROOT and "clearhead train" in one:
            verbs = [re.findall(r"clearhead (\w+)", block) for block in (one, two)]
            assert verbs[0] == verbs[1] == ["data", "new", "train", "translate"]
        else:
            assert without_comments(one) == without_comments(two)


@pytest.mark.parametrize("path", sorted((DOCS / "en" / "course").glob("*.md")), ids=ids)
def test_the_chinese_chapter_shows_the_output_of_the_english_one(path: Path):
    english, other = (p.read_text(encoding="utf-8") for p in (path, chinese(path)))
    assert blocks(english, "text") == blocks(other, "text")


# Run by tests/data/test_guide.py, tests/api/test_python_page.py, tests/serving/test_clients.py,
# tests/doctor/diff/test_guide.py and tests/course/test_whole.py.
NEEDS_ITS_COMMANDS_FIRST = {"data.md", "python.md", "serving.md", "whole.md", "diff.md"}
FRAGMENTS = {"checks.md"}  # wrong and right lines side by side, which are no programs
SELF_CONTAINED = [page for page in ENGLISH if page.name not in NEEDS_ITS_COMMANDS_FIRST | FRAGMENTS]
# Pages that train, export or decode for ten seconds and more.
LONG = {
    "07-encoder-decoder.md",
    "08-loss.md",
    "09-translation.md",
    "10-decoding.md",
    "decoding.md",
    "interop.md",
}
LONG |= {
    "11-modern-decoders.md",
    "11b-cost.md",
    "11c-what-comes-next.md",
    "12-elsewhere.md",
    "13-looking-inside.md",
    "see.md",
    "training.md",
    "scale.md",
    "healthy.md",
}


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(page, marks=[pytest.mark.slow] if page.name in LONG else [])
        for page in SELF_CONTAINED
    ],
    ids=ids,
)
def test_every_python_block_runs_as_written(path: Path):
    """The Chinese blocks are the same code, as the test above shows."""
    text = path.read_text(encoding="utf-8")
    for code in blocks(text, "python"):
        printed = run(code)
        assert printed.strip()
        shown = re.search(rf"```python\n{re.escape(code)}```\n+```text\n(.*?)```", text, re.S)
        if shown and (path.parent.name == "course" or path.parent == ROOT):
            assert printed.split() == shown[1].split(), "the page shows another output"


def run(code: str, names: dict[str, Any] | None = None) -> str:
    """What a new process would print, from one that has torch imported already."""
    torch.manual_seed(SEED_OF_A_NEW_PROCESS)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(
            compile(code, "the block", "exec"), {"__name__": "__main__"} if names is None else names
        )
    return printed.getvalue()


READMES = pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])


@READMES
def test_the_front_page_stays_short(name: str):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 130
    programs = [*blocks(text, "bash"), *blocks(text, "python")]
    assert [len(block.splitlines()) for block in programs if len(block.splitlines()) > 6] == []
    assert [len(block.splitlines()) for block in blocks(text, "text")] == [1, 8, 3, 2]


@READMES
def test_the_front_page_shows_pictures_that_exist(name: str):
    text = (ROOT / name).read_text(encoding="utf-8")
    pictures = re.findall(r'(?:src|srcset)="([^"]+)"', text)
    assert len(pictures) == 2 and all((ROOT / picture).is_file() for picture in pictures)


def test_pages_install_the_wheel_of_this_version():
    pages = [*ROOT.glob("README*.md"), *DOCS.glob("*/index.md")]
    installed = [re.findall(r"clearhead-([\w.]+)-py3", page.read_text("utf-8")) for page in pages]
    assert installed == [[clearhead.__version__]] * 4


def test_the_parts_alone_print_shapes_and_an_attention_map():
    (code,) = blocks((DOCS / "en" / "index.md").read_text(encoding="utf-8"), "python")
    lines = run(code).splitlines()
    assert lines[:3] == ["63,082,496 parameters", "(2, 5, 37000)", "(2, 8, 5, 7)"]
    columns, *rows = lines[3:]
    assert columns.split() == [str(i) for i in range(7)]
    assert [row.split()[0] for row in rows] == [str(i) for i in range(5)]
    assert "█" in "".join(rows)
    assert all(len(row) <= 2 + 2 * 4 for row in rows), "padding must stay blank"


FOLDERS = ("docs", "results", "benchmarks", "src")
PAGES_WITH_LINKS = [
    *ROOT.glob("*.md"),
    *(page for name in FOLDERS for page in (ROOT / name).rglob("*.md")),
]


@pytest.mark.parametrize("page", PAGES_WITH_LINKS, ids=ids)
def test_links_lead_somewhere(page: Path):
    for target in re.findall(r"\]\(([^)\s]+)[^)]*\)", without_blocks(page.read_text("utf-8"))):
        if re.match("https?://|mailto:", target):
            continue
        name, _, anchor = target.partition("#")
        there = page.parent / name if name else page
        assert there.exists(), target
        if anchor:
            assert anchor in anchors(there.read_text("utf-8")), target


def anchors(text: str) -> set[str]:
    """Where GitHub, and the site, let a link into a page lead: a heading in small letters, without
    punctuation, with hyphens for blanks; one that comes again gets a number."""
    found: dict[str, int] = {}
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", without_blocks(text), flags=re.M):
        words = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w -]", "", words).replace(" ", "-")
        found[anchor] = found.get(anchor, 0) + 1
    again = {f"{anchor}-{n}" for anchor, times in found.items() for n in range(1, times)}
    return again | set(found)


def test_anchors_are_those_of_github():
    page = """
# What `train` does, and *why*
## See [the paper](https://example.org/a#b)
## 与同类工具：实测对比（2026 年）
## Twice
## Twice
```bash
# a comment
```
"""
    assert anchors(page) == {
        "what-train-does-and-why",
        "see-the-paper",
        "与同类工具实测对比2026-年",
        "twice",
        "twice-1",
    }


def test_the_reading_order_names_what_exists():
    text = (DOCS / "en" / "reading-order.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [^|]+ \| ([^|]+) \| ([^|]+) \|$", text, flags=re.M)
    checked = 0
    for files, names in rows:
        paths = re.findall(r"`([\w/]+\.py)`", files)
        source = "".join(
            (ROOT / "src" / "clearhead" / p).read_text(encoding="utf-8") for p in paths
        )
        for name in re.findall(r"`([\w-]+)`", names) if paths else []:
            assert re.search(rf"(def|class) {name}\b|\"{name}\":", source), name
            checked += 1
    assert checked > 25


def test_the_index_of_the_measurements_is_made_from_their_docstrings():
    text = BENCHMARKS_PAGE.read_text(encoding="utf-8")
    assert text == index(), "run: python -m tools.benchmarks_index"
    assert "| [step.py](step.py) | One training step" in text


def test_the_table_of_options_is_made_from_the_explanations():
    text = OPTIONS_PAGE.read_text(encoding="utf-8")
    assert text == with_options(text), "run: python -m tools.options_page"
    rows = [
        re.findall(r"^\| (`\w+`) \| (.+?) \|", page.read_text(encoding="utf-8"), flags=re.M)
        for page in (OPTIONS_PAGE, chinese(OPTIONS_PAGE))
    ]
    english, translated = (
        [(name, values) for name, values in page if "`" in values] for page in rows
    )
    assert len(english) > 20 and english == translated
    assert [name for name, _ in rows[0]] == [name for name, _ in rows[1]]


@pytest.mark.parametrize("language", PAGES)
def test_the_tables_of_speeds_are_the_measured_ones(language: str):
    text = PAGES[language].read_text(encoding="utf-8")
    assert with_tables(text, language) == text


@pytest.mark.parametrize("language", serve_page.PAGES)
def test_the_tables_of_the_server_are_the_measured_ones(language: str):
    text = serve_page.PAGES[language].read_text(encoding="utf-8")
    assert serve_page.with_tables(text, language) == text, "run: python -m tools.serve_page"


def test_every_result_that_a_page_speaks_of_is_there():
    for path in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        for name in re.findall(r"`(benchmarks/results/[\w.-]+)`", path.read_text("utf-8")):
            assert (ROOT / name).is_file(), f"{ids(path)} speaks of {name}"
