"""Plain words: what users read avoids the patterns of tests/words.toml, and every public name has a
docstring."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "clearhead"
WORDS = tomllib.loads((ROOT / "tests" / "words.toml").read_text(encoding="utf-8"))
SOURCES = sorted(PACKAGE.rglob("*.py"))
# A report as it was printed, and notes on other people's code, which they quote.
OTHER_PAGES = {"example.md", "field-notes.md"}


def pages(language: str) -> list[Path]:
    found = sorted((ROOT / "docs" / language).rglob("*.md"))
    return [page for page in found if page.name not in OTHER_PAGES]


TEXTS = PACKAGE / "doctor" / "texts"
ENGLISH = [
    *(ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "CONTRIBUTING", "SECURITY")),
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs" / "decisions").glob("*.md")),
    ROOT / "transformer-doctor" / "README.md",
    *pages("en"),
    *(page for page in sorted((ROOT / "results").rglob("*.md")) if ".zh-CN" not in page.name),
    *sorted((PACKAGE / "recipes").rglob("*.toml")),
    PACKAGE / "intake" / "public.toml",
    TEXTS / "en.toml",
]
CHINESE = [
    ROOT / "README.zh-CN.md",
    ROOT / "transformer-doctor" / "README.zh-CN.md",
    *pages("zh"),
    *sorted((ROOT / "results").rglob("*.zh-CN.md")),
    TEXTS / "zh.toml",
]


def ids(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def strings(source: str) -> Iterator[tuple[int, str]]:
    """Messages, help texts and docstrings: every string of a module that is more than a word."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


def prose(text: str) -> str:
    """A page without its blocks, its names of code, and the keys of a TOML file."""
    for code in (r"^```.*?^```", r"`[^`\n]*`", r"^\w+ = "):
        text = re.sub(code, "", text, flags=re.M | re.S)
    return text


def unwanted(text: str, language: str) -> list[str]:
    return [
        f"{found.group()!r} (write: {better})"
        for pattern, better in WORDS[language].items()
        for found in re.finditer(pattern, text, flags=re.I)
    ]


@pytest.mark.parametrize("path", SOURCES, ids=ids)
def test_strings_of_the_package_are_in_plain_words(path: Path):
    found = {
        line: odd
        for line, text in strings(path.read_text(encoding="utf-8"))
        if (odd := unwanted(text, "english"))
    }
    assert not found


@pytest.mark.parametrize("path", ENGLISH, ids=ids)
def test_english_pages_are_in_plain_words(path: Path):
    assert not unwanted(prose(path.read_text(encoding="utf-8")), "english")


@pytest.mark.parametrize("path", CHINESE, ids=ids)
def test_chinese_pages_are_in_plain_words(path: Path):
    assert not unwanted(prose(path.read_text(encoding="utf-8")), "chinese")


def test_the_patterns_find_what_they_are_for():
    assert unwanted("Stopped, it goes on.", "english") and not unwanted("It resumes.", "english")
    assert unwanted("no home in X", "english") and not unwanted("~/homework", "english")
    assert unwanted("每次导出都附证书", "chinese") and not unwanted("一致性报告", "chinese")


# A docstring that begins so completes the name above it; help() and editors show it alone. The
# second line lets pass what a comma or a colon follows: "In training, …", "For pairs: …".
FRAGMENT = re.compile(
    r"(Of|Those|Than|Is|Are|Was|Were|Behind|Beside|That|Until|Between|Among|Up to|So|Whose)\b|"
    r"(By|As|In|For|With|Without|From|On|At|To|Over|Before|After|Inside|Under)\b(?![^.]*[,:])"
)


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """The docstrings of a module, those below its fields included."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, " ".join(text.split())
            case _:
                pass


@pytest.mark.parametrize("path", SOURCES, ids=ids)
def test_no_docstring_begins_in_the_middle_of_a_sentence(path: Path):
    text = path.read_text(encoding="utf-8")
    assert not {line: doc for line, doc in docstrings(text) if FRAGMENT.match(doc)}


def test_fragments_are_recognised():
    (fragment,) = docstrings('x = 1\n"""Of the\n    token."""\n')
    assert fragment == (2, "Of the token.") and FRAGMENT.match(fragment[1])
    assert FRAGMENT.match("By column.") and FRAGMENT.match("With their numbers. Then, more.")
    assert not FRAGMENT.match("In training, it masks tokens.")
    assert not FRAGMENT.match("The log-probability of the token.")


# Their class, or the file of their verb, says what they do.
DESCRIBED_ELSEWHERE = {"forward", "extra_repr", "add_arguments", "run"}
# The protocols `BatchLayout` and `Listener` say what these methods do.
OF_LAYOUTS = {"cut", "collate"}
OF_LISTENERS = {"step", "validation", "say", "close"}


def of_protocols(node: ast.ClassDef) -> set[str]:
    """The methods of a class that a protocol describes: a layout has its name, and a listener has
    all its methods."""
    methods = {child.name for child in node.body if isinstance(child, ast.FunctionDef)}
    return (OF_LAYOUTS if node.name.endswith("Layout") else set()) | (
        OF_LISTENERS if methods >= OF_LISTENERS else set()
    )


def undocumented(node: ast.Module | ast.ClassDef, described: set[str]) -> Iterator[str]:
    """Public classes, functions and methods without a docstring; overloads have that of their
    function."""
    for child in node.body:
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if child.name.startswith("_"):
            continue
        if any(
            isinstance(each, ast.Name) and each.id == "overload" for each in child.decorator_list
        ):
            continue
        if not ast.get_docstring(child) and child.name not in described:
            yield child.name
        if isinstance(child, ast.ClassDef):
            for name in undocumented(child, described | of_protocols(child)):
                yield f"{child.name}.{name}"


@pytest.mark.parametrize("path", SOURCES, ids=ids)
def test_every_public_name_says_what_it_is_for(path: Path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not list(undocumented(tree, DESCRIBED_ELSEWHERE))


def test_an_undocumented_name_is_found():
    source = "async def one(): ...\nclass Two:\n    'It.'\n    def close(self): ...\n"
    assert list(undocumented(ast.parse(source), set())) == ["one", "Two.close"]
    methods = "".join(f"    def {name}(self): ...\n" for name in sorted(OF_LISTENERS))
    assert not list(undocumented(ast.parse(f"class Two:\n    'It.'\n{methods}"), set()))
