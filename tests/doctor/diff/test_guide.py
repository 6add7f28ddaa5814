"""What the page about diff shows is what its programs and commands print."""

import re
import sys
from pathlib import Path

import pytest

from clearhead.cli import main
from tests.test_documents import DOCS, blocks, run


@pytest.mark.slow
@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_worked_example_ends_with_equal_logits(
    language: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    page = (DOCS / language / "doctor" / "diff.md").read_text(encoding="utf-8")
    reference, port, in_a_test = blocks(page, "python")
    commands, shown = blocks(page, "bash"), blocks(page, "text")
    (change,) = blocks(page, "diff")
    fixed = port
    for old, new in re.findall(r"^-(.*)\n\+(.*)$", change, flags=re.M):
        assert fixed.count(old) == 1
        fixed = fixed.replace(old, new)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    Path("reference.py").write_text(reference, encoding="utf-8")
    for source, command, printed, code in zip((port, fixed), commands, shown, (1, 0)):
        sys.modules.pop("reference", None)
        Path("port.py").write_text(source, encoding="utf-8")
        assert main(command.split()[1:]) == code
        assert capsys.readouterr().out.split() == printed.split()
    assert "GELU" in run(in_a_test)
