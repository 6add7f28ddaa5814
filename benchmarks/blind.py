"""The doctor on a blind trial's models: bugs (b…), unusual healthy models (u…) and healthy bases
(c…), written by somebody who had not read the checks. The models are not part of this repository.

    python -m benchmarks.blind FOLDER               # all of them, full examinations
    python -m benchmarks.blind FOLDER b01 u03       # those whose names begin so, with the findings

FOLDER holds a README.md with a line "- `NAME` (KIND): what it is -> …" for each model, and
NAME.py with `build_model()`. Whether a headline names the bug is a judgement, which
`blind_judgements.toml` gives. Writes benchmarks/results/blind.json.
"""

import argparse
import contextlib
import importlib.util
import io
import re
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import torch

from clearhead.doctor import examine
from tools.forked import forked
from tools.result import write_result

JUDGEMENTS = Path(__file__).parent / "blind_judgements.toml"
SECONDS = 900
LINE = re.compile(r"^- `(\w+)` \(([a-z-]+)\): (.*?) -> ", re.MULTILINE)


def examine_file(file: Path, kind: Any, seed: int, quick: bool) -> dict[str, Any]:
    """What the plain command says of a file's model."""
    torch.set_num_threads(1)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    started = time.monotonic()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            spec.loader.exec_module(module)
            torch.manual_seed(seed)
            report = examine(module.build_model(), kind=kind, seed=seed, quick=quick)
    except Exception as error:  # not recognised, or worse
        return {"error": f"{type(error).__name__}: {str(error)[:300]}"}
    return {
        "headlines": [_named(f) for f in report.headlines if f.severity != "note"],
        "following": [f.case for f in report.findings if f.because is not None],
        "notes": [f.case for f in report.headlines if f.severity == "note"],
        "could not run": {o.check: o.reason for o in report.not_run},
        "seconds": round(time.monotonic() - started, 1),
    }


def _named(finding: Any) -> str:
    """The case, and what it was traced to."""
    return finding.case + (f":{finding.origin}" if finding.origin else "")


def verdict(name: str, said: dict[str, Any], judged: dict[str, Any]) -> str:
    """Of a bug: right, wrong cause, or missed. Of a healthy model: clean, true, or false alarm."""
    headlines = said.get("headlines", [])
    entry = judged.get(name, {})
    true = [case for case in headlines if case.partition(":")[0] in entry.get("true", [])]
    if not name.startswith("b"):
        return "clean" if not headlines else "true" if true == headlines else "false alarm"
    others = [case for case in headlines if case not in true]
    if not others:
        return "missed"
    case, _, origin = others[0].partition(":")
    check = case.partition(".")[0]
    keys = (case, check, f"{check}:{origin}")
    return "right" if any(key in entry.get("right", []) for key in keys) else "wrong cause"


def figures(results: dict[str, Any], judged: dict[str, Any]) -> dict[str, int]:
    defects = [n for n in results if n.startswith("b") and not judged.get(n, {}).get("no_defect")]
    healthy = [n for n in results if not n.startswith("b")]
    verdicts = {name: said["verdict"] for name, said in results.items()}
    return {
        "models": len(results),
        "recognised": sum("error" not in said for said in results.values()),
        "bugs": len(defects),
        "flagged": sum(verdicts[name] in ("right", "wrong cause") for name in defects),
        "right first headline": sum(verdicts[name] == "right" for name in defects),
        "healthy": len(healthy),
        "false alarms": sum(verdicts[name] == "false alarm" for name in healthy),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help="the beginnings of names; all, if none is given")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--result", default="blind", help="the name of the result file")
    arguments = parser.parse_args()
    judged = tomllib.loads(JUDGEMENTS.read_text(encoding="utf-8"))
    listed = LINE.findall((arguments.folder / "README.md").read_text(encoding="utf-8"))
    results: dict[str, Any] = {}
    for name, kind, what in listed:
        if arguments.names and not name.startswith(tuple(arguments.names)):
            continue
        file = arguments.folder / f"{name}.py"
        try:
            said = forked(
                examine_file, file, kind, arguments.seed, arguments.quick, seconds=SECONDS
            )
        except RuntimeError as error:
            said = {"error": str(error)}
        results[name] = {"what": what, "verdict": verdict(name, said, judged), **said}
        shown = said.get("error") or " ".join(said["headlines"])
        behind = " ".join(said.get("following", []))
        notes = " ".join(said.get("notes", []))
        stopped = said.get("could not run") or ""
        print(
            f"{name:24} {results[name]['verdict']:12} {said.get('seconds', 0):6} s  {shown}"
            f"  | {behind} | {notes} {stopped}",
            flush=True,
        )
    counted = figures(results, judged)
    print(counted)
    if not arguments.names:
        write_result(arguments.result, {"figures": counted, "models": results})


if __name__ == "__main__":
    main()
