"""The tables of the peers, from results/peers.jsonl."""

import json
from typing import Any

from benchmarks.result import FOLDER

RESULT = FOLDER / "peers.jsonl"


def read_lines(task: str) -> list[dict[str, Any]]:
    if not RESULT.exists():
        return []
    lines = RESULT.read_text(encoding="utf-8").splitlines()
    return [line for each in lines if (line := json.loads(each))["task"] == task]


def write_tables() -> None: ...
