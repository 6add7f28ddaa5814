"""How many bugs `clearhead diff` finds in a folder of pairs.

    python -m tests.doctor.diff.pairs FOLDER [NAME …] [--result diff_pairs]

Each folder in FOLDER is a pair: `reference.py` and `port.py`, each with a function `build` that
returns a module with its weights (the port's may import the reference's), and `expected.json`:

    {"kind": "decoder",
     "bugs": [{"lines": [27, 28], "causes": ["factor"], "note": "divided by sqrt(d_model)"}]}

`lines` are the lines of port.py that a reader would change, or, where something is missing, those
around the place; `also_lines` are further ones that are right as well; `causes` are the kinds of
docs/en/doctor/diff.md that are right. A pair without bugs is healthy. `kind`, `address` (of the
thread that a bug comes from), `also_lines` and `note` may be left out.

A bug counts as located if a departure is reported at one of its lines; as named if that departure
has one of its causes; any other cause that is named counts as wrong. Each pair is a process of its
own, with 1800 s; the first departure is also counted alone.
"""

import argparse
import contextlib
import io
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import transformers

from clearhead.cli import main as main_command
from tools.forked import forked
from tools.result import write_result

SECONDS = 1800


def run_pair(folder: Path) -> dict[str, Any]:
    """What `clearhead diff` says about one pair, and which bugs that is."""
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    started = time.monotonic()
    try:
        code, printed, said = forked(_run, folder, expected.get("kind"), seconds=SECONDS)
    except RuntimeError as error:
        code, printed, said = 2, "", str(error)
    report: dict[str, Any] = {"same": False, "departures": []}
    problem = {}
    if code in (0, 1):
        report = json.loads(printed)
    else:
        problem = {"error": said.strip()[-400:].replace(f"{folder}/", "")}
    bugs = expected.get("bugs", [])
    found = [_judged(bug, report["departures"]) for bug in bugs]
    lines = {line for bug in bugs for line in _lines(bug)}
    elsewhere = [d for d in report["departures"] if _line(d) not in lines]
    return {
        "pair": folder.name,
        **({"address": expected["address"]} if "address" in expected else {}),
        **problem,
        "same": report["same"],
        "seconds": round(time.monotonic() - started, 1),
        "bugs": found,
        "elsewhere": [f"{_line(d)}: {d['text']}" for d in elsewhere],
        "wrong causes": sum(bug["named wrongly"] for bug in found)
        + sum(d["cause"] is not None for d in elsewhere),
        "first line is right": bool(report["departures"])
        and _line(report["departures"][0]) in lines,
    }


def _run(folder: Path, kind: str | None) -> tuple[int, str, str]:
    """The command in the folder: its exit code, and what it prints and says."""
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    printed, said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said):
        words = ["diff", "reference.py:build", "port.py:build", "--json"]
        code = main_command([*words, *(["--kind", kind] if kind else [])])
    return code, printed.getvalue(), said.getvalue()


def _judged(bug: dict[str, Any], departures: list[dict[str, Any]]) -> dict[str, Any]:
    here = [d for d in departures if _line(d) in _lines(bug)]
    kinds = [d["cause"]["kind"] for d in here if d["cause"] is not None]
    return {
        "note": bug.get("note", ""),
        "located": bool(here),
        "named": any(kind in bug["causes"] for kind in kinds),
        "named wrongly": sum(kind not in bug["causes"] for kind in kinds),
        "causes": kinds,
    }


def _lines(bug: dict[str, Any]) -> list[int]:
    return [*bug["lines"], *bug.get("also_lines", [])]


def _line(departure: dict[str, Any]) -> int | None:
    line = departure["line"]
    return line["line"] if line is not None and Path(line["file"]).name == "port.py" else None


def summary(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    """The counts over all pairs. A pair that cannot be compared counts as a miss."""
    single = [pair for pair in pairs if len(pair["bugs"]) == 1]
    several = [pair for pair in pairs if len(pair["bugs"]) > 1]
    healthy = [pair for pair in pairs if not pair["bugs"]]
    return {
        "pairs": len(pairs),
        "errors": sum("error" in pair for pair in pairs),
        "one bug": _counts(single),
        "several bugs": {
            **_counts(several),
            "all located": sum(all(bug["located"] for bug in pair["bugs"]) for pair in several),
        },
        "healthy": {
            "pairs": len(healthy),
            "the same": sum(pair["same"] for pair in healthy),
            "wrong causes": sum(pair["wrong causes"] for pair in healthy),
        },
        "slowest, in seconds": max((pair["seconds"] for pair in pairs), default=0),
    }


def _counts(pairs: list[dict[str, Any]]) -> dict[str, int]:
    bugs = [bug for pair in pairs for bug in pair["bugs"]]
    return {
        "pairs": len(pairs),
        "bugs": len(bugs),
        "located": sum(bug["located"] for bug in bugs),
        "named": sum(bug["named"] for bug in bugs),
        "wrong causes": sum(pair["wrong causes"] for pair in pairs),
        "pairs with a wrong cause": sum(pair["wrong causes"] > 0 for pair in pairs),
        "first line is right": sum(pair["first line is right"] for pair in pairs),
    }


def main() -> None:
    transformers.utils.logging.set_verbosity_error()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--result", help="write benchmarks/results/NAME.json")
    arguments = parser.parse_args()
    folders = sorted(path.parent for path in arguments.folder.resolve().glob("*/expected.json"))
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
