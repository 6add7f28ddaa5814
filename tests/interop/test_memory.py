"""A model of a billion parameters passes through the memory of one shard."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SCRIPT = ROOT / "benchmarks" / "export_memory.py"
RESULT = ROOT / "benchmarks" / "results" / "export_memory.json"
LIMIT = 1.5


def check(result: dict) -> None:
    assert result["parameters"] > 10**9
    for direction in ("export", "import"):
        assert result[direction]["peak_over_largest_shard"] < LIMIT


def test_the_measured_peak_is_below_one_and_a_half_shards():
    check(json.loads(RESULT.read_text()))


@pytest.mark.slow
def test_the_measurement_can_be_repeated(tmp_path: Path):
    out = tmp_path / "result.json"
    command = [sys.executable, str(SCRIPT), "--folder", str(tmp_path), "--out", str(out)]
    subprocess.run(command, check=True, cwd=ROOT)
    check(json.loads(out.read_text()))
