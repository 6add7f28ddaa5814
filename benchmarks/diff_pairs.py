"""How many bugs `clearhead diff` finds in a folder of pairs.

    python -m benchmarks.diff_pairs FOLDER [NAME …] [--result diff_pairs]

Each folder in FOLDER is a pair: `reference.py` and `port.py`, each with a function `build` that
returns a module with its weights (the port's may import the reference's), and `expected.json`:

    {"kind": "decoder",
     "bugs": [{"lines": [27, 28], "causes": ["factor"], "note": "divided by sqrt(d_model)"}]}

`lines` are the lines of port.py that a reader would change, or, where something is missing, those
around the place; `causes` are the kinds of docs/en/doctor/diff.md that are right. A pair without
bugs is healthy. `kind`, `address` (of the thread that a bug comes from) and `note` may be left out.
A bug counts as located if a departure is reported at one of its lines; as named if that departure
has one of its causes; any other cause that is named counts as wrong. Each pair is a process of its
own, with 600 s; the first departure is also counted alone.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.result import write_result

SECONDS = 600


def run_pair(folder: Path) -> dict[str, Any]:
    """What `clearhead diff` says about one pair, and which bugs that is."""
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    command = [sys.executable, "-m", "clearhead", "diff", "reference.py:build", "port.py:build"]
    command += ["--json"]
    if expected.get("kind"):
        command += ["--kind", expected["kind"]]
    started = time.monotonic()
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return {"pair": folder.name, "error": f"more than {SECONDS} s"}
    seconds = round(time.monotonic() - started, 1)
    if done.returncode not in (0, 1):
        return {"pair": folder.name, "error": done.stderr.strip()[-400:], "seconds": seconds}
    report = json.loads(done.stdout)
    bugs = expected.get("bugs", [])
    found = [_judged(bug, report["departures"]) for bug in bugs]
    lines = {line for bug in bugs for line in bug["lines"]}
    elsewhere = [d for d in report["departures"] if _line(d) not in lines]
    return {
        "pair": folder.name,
        "same": report["same"],
        "seconds": seconds,
        "bugs": found,
        "elsewhere": [f"{_line(d)}: {d['text']}" for d in elsewhere],
        "wrong causes": sum(bug["named wrongly"] for bug in found)
        + sum(d["cause"] is not None for d in elsewhere),
        "first line is right": bool(report["departures"])
        and _line(report["departures"][0]) in lines,
    }


def _judged(bug: dict[str, Any], departures: list[dict[str, Any]]) -> dict[str, Any]:
    here = [d for d in departures if _line(d) in bug["lines"]]
    kinds = [d["cause"]["kind"] for d in here if d["cause"] is not None]
    return {
        "note": bug.get("note", ""),
        "located": bool(here),
        "named": any(kind in bug["causes"] for kind in kinds),
        "named wrongly": sum(kind not in bug["causes"] for kind in kinds),
        "causes": kinds,
    }


def _line(departure: dict[str, Any]) -> int | None:
    line = departure["line"]
    return line["line"] if line is not None and Path(line["file"]).name == "port.py" else None


def summary(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    """The counts over all pairs."""
    bugs = [bug for pair in pairs for bug in pair.get("bugs", [])]
    several = [pair for pair in pairs if len(pair.get("bugs", [])) > 1]
    healthy = [pair for pair in pairs if pair.get("bugs") == []]
    return {
        "pairs": len(pairs),
        "errors": sum("error" in pair for pair in pairs),
        "bugs": len(bugs),
        "located": sum(bug["located"] for bug in bugs),
        "named": sum(bug["named"] for bug in bugs),
        "wrong causes": sum(pair.get("wrong causes", 0) for pair in pairs),
        "pairs of several bugs": len(several),
        "all located": sum(all(bug["located"] for bug in pair["bugs"]) for pair in several),
        "healthy": len(healthy),
        "healthy and the same": sum(pair["same"] for pair in healthy),
        "slowest, in seconds": max((pair.get("seconds", 0) for pair in pairs), default=0),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--result", help="write benchmarks/results/NAME.json")
    arguments = parser.parse_args()
    folders = sorted(path.parent for path in arguments.folder.glob("*/expected.json"))
    pairs = []
    for folder in folders:
        if arguments.names and folder.name not in arguments.names:
            continue
        pairs.append(run_pair(folder))
        print(json.dumps(pairs[-1], ensure_ascii=False), flush=True)
    counts = summary(pairs)
    print(json.dumps(counts, indent=2))
    if arguments.result:
        write_result(arguments.result, {"summary": counts, "pairs": pairs})


if __name__ == "__main__":
    main()
