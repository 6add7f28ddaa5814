"""A result file: what was measured, by which command, at which commit, on which machine, when."""

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
FOLDER = Path(__file__).parent / "results"


def write_result(name: str, measured: dict[str, Any]) -> Path:
    """Write results/NAME.json and return its path."""
    path = FOLDER / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({**circumstances(), **measured}, indent=2) + "\n", encoding="utf-8")
    return path


def circumstances() -> dict[str, Any]:
    arguments = " ".join(sys.argv[1:])
    program = Path(sys.argv[0])
    name = program.parent.name if program.stem == "__main__" else program.stem
    return {
        "command": f"python -m benchmarks.{name} {arguments}".strip(),
        "commit": commit_of(Path(__file__).parent.parent),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": {
            "processor": processor_name(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "python": platform.python_version(),
            "torch": torch.__version__,
        },
    }


def commit_of(root: Path) -> str:
    """Of a checkout; results that were measured are not changes."""

    def git(*arguments: str) -> str:
        run = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True)
        return run.stdout.strip()

    commit = git("rev-parse", "--short=12", "HEAD") or "unknown"
    changed = [line for line in git("status", "--porcelain").splitlines() if RESULTS not in line]
    return f"{commit}, with uncommitted changes" if changed else commit
