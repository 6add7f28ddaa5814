"""The worked examples of docs/*/scale.md are what the commands print."""

import re
import shlex
from pathlib import Path

import pytest

from clearhead.cli import main

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = [
    re.findall(
        r"^```console\n\$ clearhead (plan [^\n]*)\n(?!\$)(.*?)^```",
        (DOCS / language / "scale.md").read_text(encoding="utf-8"),
        flags=re.M | re.S,
    )
    for language in ("en", "zh")
]


def test_both_languages_show_the_same_three_examples():
    assert EXAMPLES[0] == EXAMPLES[1]
    assert len(EXAMPLES[0]) == 3


@pytest.mark.slow
@pytest.mark.parametrize(("command", "shown"), EXAMPLES[0])
def test_an_example_is_what_the_command_prints(command, shown, capsys):
    assert main(shlex.split(command)) == 0
    assert capsys.readouterr().out == shown
