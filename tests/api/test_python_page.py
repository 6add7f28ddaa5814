"""docs/en/python.md runs: its blocks in their order, in one folder, each of at most ten lines."""

import re
from pathlib import Path

import pytest

from tests.test_documents import DOCS, blocks

PAGE = (DOCS / "en" / "python.md").read_text(encoding="utf-8")


def test_each_block_has_ten_lines_at_most_and_imports_little():
    found = blocks(PAGE, "python")
    assert len(found) == 8
    for code in found:
        lines = [line for line in code.splitlines() if line.strip()]
        imported = {line for line in lines if re.match(r"(import|from) ", line)}
        assert imported <= {
            "import clearhead as ch",
            "from clearhead.errors import ConfigError",
            "from torch import nn",
        }
        assert len(lines) <= 10, code


@pytest.mark.slow
def test_the_page_runs_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CLEARHEAD_DATA", raising=False)
    for number, block in enumerate(blocks(PAGE, "python"), 1):
        exec(compile(block, f"block {number}", "exec"), {"__name__": "block"})
    said = capsys.readouterr().out
    for expected in ("Text: 600 pairs", "clearhead2026\n", "['abc', 'x1y2z3']", "██", "exact "):
        assert expected in said, said
    assert "largest logit difference" in said and "\nTrue\n" in said
    assert (tmp_path / "hello.html").read_text(encoding="utf-8").startswith("<!doctype html>")
