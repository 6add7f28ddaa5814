"""The quick tests with the versions of Python, torch and transformers that run this command.

    python -m benchmarks.versions                # in an environment that holds them

Appends a line to benchmarks/results/versions.jsonl, in the place of an earlier one with the same
versions: how many tests passed, which failed, and which modules could not be imported.
"""

import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import clearhead
from clearhead.files import write_whole
from tools.result import FOLDER, ROOT, circumstances

RESULT = FOLDER / "versions.jsonl"
PACKAGES = ("torch", "transformers", "tokenizers", "ctranslate2", "onnxruntime")


def versions() -> dict[str, str]:
    """The versions of this environment."""
    packages = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {"python": platform.python_version(), **packages}


def run_tests() -> dict[str, Any]:
    """Run the quick tests of .ci/run on two cores."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--numprocesses", "2", "-m", "not slow", "-rfE"],
        env={**os.environ, "CLEARHEAD_DRAWS": "few", "OMP_NUM_THREADS": "1"},
        text=True,
        stdout=subprocess.PIPE,
    )
    lines = done.stdout.splitlines()
    print("\n".join(lines[-40:]))
    counts = {name: int(n) for n, name in re.findall(r"(\d+) (\w+)", lines[-1])}
    return {
        "passed": counts.get("passed", 0),
        "skipped": counts.get("skipped", 0),
        "failed": [
            line.split(" ", 1)[1].split(" - ")[0]
            for line in lines
            if line.startswith(("FAILED ", "ERROR "))
        ],
    }


def main() -> None:
    if not Path(clearhead.__file__).is_relative_to(ROOT):
        sys.exit(f"versions: {clearhead.__file__} is not the clearhead of this checkout")
    line = {**versions(), **run_tests(), **circumstances()}
    kept = RESULT.read_text(encoding="utf-8").splitlines() if RESULT.exists() else []
    others = [
        other
        for other in map(json.loads, kept)
        if any(other[name] != line[name] for name in versions())
    ]
    text = "".join(f"{json.dumps(entry, ensure_ascii=False)}\n" for entry in (*others, line))
    write_whole(RESULT, text)


if __name__ == "__main__":
    main()
