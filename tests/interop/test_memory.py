"""A model of a billion parameters passes through the memory of one shard."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SCRIPT = ROOT / "benchmarks" / "export_memory.py"
LIMIT = 1.5


@pytest.mark.slow
def test_the_peak_is_below_one_and_a_half_shards(tmp_path: Path):
    out = tmp_path / "result.json"
    command = [sys.executable, str(SCRIPT), "--folder", str(tmp_path), "--out", str(out)]
    subprocess.run(command, check=True, cwd=ROOT)
    result = json.loads(out.read_text())
    assert result["parameters"] > 10**9
    for direction in ("export", "import"):
        assert result[direction]["peak_over_largest_shard"] < LIMIT
