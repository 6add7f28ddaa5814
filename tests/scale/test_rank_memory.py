"""The planner against the memory of real steps: `python -m benchmarks.rank_memory`."""

import json

import pytest

from benchmarks.rank_memory import MODELS, RESULT, compared

MEASURED = json.loads(RESULT.read_text(encoding="utf-8"))["measured_mb"]


@pytest.mark.parametrize("name", [name for name in MODELS if MEASURED[name]])
def test_a_rank_holds_what_was_planned(name: str):
    rows = compared(name, MEASURED[name])
    assert rows
    for what, row in rows.items():
        limit = 0.10 if "from" in what else 0.15
        assert abs(row["error"]) < limit, f"{what}: {row}"
