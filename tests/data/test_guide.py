"""The guide says the same in both languages, and what it shows of commands and code is true."""

import re
from pathlib import Path

import pytest

from clearhead.cli import main

DOCS = Path(__file__).parent.parent.parent / "docs"
GUIDES = [(DOCS / name / "data.md").read_text(encoding="utf-8") for name in ("en", "zh")]


def code(text: str) -> list[str]:
    return re.findall(r"^```.*?^```$", text, flags=re.M | re.S)


def test_both_languages_show_the_same_code_headings_tables_and_keys():
    english, chinese = GUIDES
    assert code(english) == code(chinese)
    for pattern in (r"^#+ ", r"^\|[-|]+\|$", r"^- \*\*"):
        assert len(re.findall(pattern, english, re.M)) == len(re.findall(pattern, chinese, re.M))
    rows = [re.findall(r"^\| (`[^`]+`) \|", text, re.M) for text in GUIDES]
    assert rows[0] == rows[1]


@pytest.mark.slow
def test_the_guide_runs(
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    """The commands and the Python of the page, one after the other, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    shown = [line for block in code(GUIDES[0]) for line in block.splitlines()]
    commands = [line.removeprefix("$ clearhead ") for line in shown if line.startswith("$ clear")]
    assert len(commands) == 5
    assert [main(command.split()) for command in commands] == [0, 0, 0, 0, 2]
    assert "\n".join(shown).count(capsys.readouterr().err.strip()) == 1
    page = next(block for block in code(GUIDES[0]) if "Loader(" in block)
    exec(page.removeprefix("```python\n").removesuffix("```"))
    assert "'step': 1" in capsys.readouterr().out
