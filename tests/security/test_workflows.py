"""What runs in the project's name on other machines: with few rights, and by exact commits."""

import re
from pathlib import Path

import pytest

WORKFLOWS = sorted((Path(__file__).parents[2] / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_by_its_commit(path: Path):
    used = re.findall(r"uses: (\S+)", path.read_text(encoding="utf-8"))
    assert used
    for action in used:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action), action


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_only_read_and_keeps_no_credentials(path: Path):
    text = path.read_text(encoding="utf-8")
    assert re.search(r"^permissions:(\n  contents: read| \{\})$", text, flags=re.M)
    assert text.count("actions/checkout@") == text.count("persist-credentials: false")
