"""The two languages say the same things, of every check, with the same numbers; the pages that are
made from them are in step."""

import ast
import re
from pathlib import Path
from string import Formatter

import pytest

from clearhead.doctor import handbook
from clearhead.doctor.checks import CHECKS
from clearhead.doctor.texts import LANGUAGES, code, nearest_text, sentences

ROOT = Path(__file__).parents[2]
CHECK_FILES = ROOT / "src" / "clearhead" / "doctor" / "checks"


def keys(tree: dict, path: str = "") -> set[str]:
    found: set[str] = set()
    for key, value in tree.items():
        found |= keys(value, f"{path}{key}.") if isinstance(value, dict) else {f"{path}{key}"}
    return found


def leaf(tree: dict, path: str) -> str:
    for key in path.split("."):
        tree = tree[key]
    return tree  # type: ignore[return-value]


def fields(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name}


def test_both_languages_have_the_same_sentences():
    english, chinese = (keys(sentences(language)) for language in LANGUAGES)
    assert english == chinese


@pytest.mark.parametrize("path", sorted(keys(sentences("en"))))
def test_a_sentence_uses_the_same_numbers_in_both_languages(path: str):
    english, chinese = (leaf(sentences(language), path) for language in LANGUAGES)
    assert fields(english) == fields(chinese)
    assert chinese.strip() and english.strip()


def test_chinese_sentences_are_chinese():
    for path in keys(sentences("zh")["checks"]):
        text = leaf(sentences("zh")["checks"], path)
        assert any("一" <= letter <= "鿿" for letter in text), path


def test_every_check_is_explained_and_nothing_else_is():
    names = {check.name for check in CHECKS}
    assert set(sentences("en")["checks"]) == names
    assert {re.split("[.:]", key)[0] for key in code()} == names
    assert names <= set(code())


def test_every_case_in_the_code_has_its_sentence():
    """Cases are written as literals, or as f-strings that begin with the name of the check."""
    source = "".join(path.read_text(encoding="utf-8") for path in CHECK_FILES.glob("*.py"))
    for name, text in sentences("en")["checks"].items():
        for case in text["seen"]:
            literal = f'"{name}.{case}"' in source
            assert literal or re.search(rf'f"{name}\.\w*{{', source), f"{name}.{case}"


def test_what_a_finding_is_traced_to_has_words_and_lines_of_its_own():
    source = "".join(path.read_text(encoding="utf-8") for path in CHECK_FILES.glob("*.py"))
    for check, text in sentences("en")["checks"].items():
        for origin, words in text.get("origins", {}).items():
            assert f'"{origin}"' in source, f"{check}:{origin}"
            assert {"title", "cause"} <= set(words), f"{check}:{origin}"
    traced = {key for key in code() if ":" in key}
    named = [
        f"{check}:{origin}"
        for check, text in sentences("en")["checks"].items()
        for origin in text.get("origins", {})
    ]
    assert traced == set(named)


def test_a_pair_is_short_and_its_two_sides_differ():
    for name, pair in code().items():
        assert pair["wrong"] != pair["right"], name
        assert all(len(side.strip().splitlines()) <= 5 for side in pair.values()), name


def test_the_right_lines_are_python():
    for pair in code().values():
        for side in pair.values():
            ast.parse(side)  # which, unlike compile, takes a return without its function


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_handbook_is_in_step_with_the_code(language):
    page = handbook.path(ROOT, language).read_text(encoding="utf-8")
    assert page == handbook.handbook(language), "run python -P -m clearhead.doctor.handbook"


def test_the_handbook_lists_every_check():
    assert all(f"(`{check.name}`)" in handbook.handbook("en") for check in CHECKS)


def test_lists_are_written_as_their_language_writes_them():
    assert nearest_text("zzz", ["ab", "cd"], "en").endswith("'ab', 'cd'")
    assert "'ab'、'cd'" in nearest_text("zzz", ["ab", "cd"], "zh")
