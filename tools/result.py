"""Writes a result file: what was measured, by which command, at which commit, on which machine, and
when."""

import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from clearhead.environment import processor_name

RESULTS = "benchmarks/results/"
ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "benchmarks" / "results"


def write_result(name: str, measured: dict[str, Any]) -> Path:
    """Write benchmarks/results/NAME.json and return its path."""
    path = FOLDER / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({**circumstances(), **measured}, indent=2) + "\n", encoding="utf-8")
    return path


def circumstances() -> dict[str, Any]:
    arguments = " ".join(sys.argv[1:])
    return {
        "command": f"python -m {module_that_runs()} {arguments}".strip(),
        "commit": commit_of(ROOT),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": {
            "processor": processor_name(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "python": platform.python_version(),
            "torch": torch.__version__,
        },
    }


def module_that_runs() -> str:
    """Return what follows `python -m`. For a package, the module is its `__main__`."""
    spec = sys.modules["__main__"].__spec__
    return Path(sys.argv[0]).stem if spec is None else spec.name.removesuffix(".__main__")


def commit_of(root: Path) -> str:
    """Return the commit of a checkout. New result files do not count as changes."""

    def git(*arguments: str) -> str:
        run = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True)
        return run.stdout.strip()

    commit = git("rev-parse", "--short=12", "HEAD") or "unknown"
    changed = [line for line in git("status", "--porcelain").splitlines() if RESULTS not in line]
    return f"{commit}, with uncommitted changes" if changed else commit
