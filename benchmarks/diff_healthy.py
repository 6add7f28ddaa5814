"""Does `diff` accuse programs that compute the same? All healthy pairs, and the planted bugs of the
tests.

    python -m benchmarks.diff_healthy [healthy] [planted] [NAME …]

Writes benchmarks/results/diff_healthy.json and diff_planted.json, if all of their pairs were run.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import transformers

from clearhead.doctor.diff import diff
from tests.doctor.diff import planted
from tests.doctor.diff.healthy import NAMES, pair
from tools.result import write_result


def healthy(name: str) -> dict[str, Any]:
    """One pair that agrees."""
    with tempfile.TemporaryDirectory() as folder:
        reference, port, how = pair(name, Path(folder))
        started = time.monotonic()
        report = diff(reference, port, **how)
        return {
            "pair": name,
            "same": report.same,
            "departures": [str(d.line) for d in report.departures],
            "weights": [f.kind for f in report.weights.findings],
            "difference": report.walk.difference,
            "noise": report.walk.noise,
            "common tensors": f"{report.walk.n_common} of {report.walk.n_operations}",
            "seconds": round(time.monotonic() - started, 1),
        }


def buggy(bug: planted.Bug, references: dict[str, Any]) -> dict[str, Any]:
    """One planted bug."""
    if bug.family not in references:
        references[bug.family] = planted.reference(bug.family, "sdpa")
    original = references[bug.family]
    with tempfile.TemporaryDirectory() as folder:
        port = planted.port(bug.family, original, Path(folder), bug)
        started = time.monotonic()
        report = diff(original, port, kind=planted.kind_of(bug.family), steps=False)  # type: ignore[arg-type]
        found = [
            {
                "line": None if d.line is None else d.line.line,
                "cause": None if d.cause is None else d.cause.kind,
            }
            for d in report.departures
        ]
        lines = bug.lines()
        first = found[0] if found else {"line": None, "cause": None}
        return {
            "bug": f"{bug.family}/{bug.name}",
            "located": first["line"] in lines,
            "named": first["cause"] in bug.causes,
            "wrong causes": sum(d["cause"] not in (None, *bug.causes) for d in found),
            "departures": found,
            "judged": report.walk.judged,
            "seconds": round(time.monotonic() - started, 1),
        }


def main() -> None:
    transformers.utils.logging.set_verbosity_error()
    asked = sys.argv[1:]
    parts = [part for part in asked if part in ("healthy", "planted")] or ["healthy", "planted"]
    names = [name for name in asked if name not in ("healthy", "planted")]
    measured: dict[str, Any] = {}
    if "healthy" in parts:
        rows = [_shown(healthy(n)) for n in NAMES if not names or any(w in n for w in names)]
        measured["healthy"] = {
            "pairs": len(rows),
            "the same": sum(row["same"] for row in rows),
            "rows": rows,
        }
    if "planted" in parts:
        references: dict[str, Any] = {}
        chosen = [
            b for b in planted.BUGS if not names or any(w in f"{b.family}/{b.name}" for w in names)
        ]
        rows = [_shown(buggy(bug, references)) for bug in chosen]
        measured["planted"] = {
            "bugs": len(rows),
            "located": sum(row["located"] for row in rows),
            "named": sum(row["named"] for row in rows),
            "wrong causes": sum(row["wrong causes"] for row in rows),
            "rows": rows,
        }
    print(json.dumps({k: {**v, "rows": "…"} for k, v in measured.items()}, indent=2))
    if not names:
        for part, found in measured.items():
            write_result(f"diff_{part}", found)


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    print(json.dumps(row, ensure_ascii=False), flush=True)
    return row


if __name__ == "__main__":
    main()
