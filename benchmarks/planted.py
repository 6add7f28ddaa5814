"""The doctor on planted bugs: what it says of each broken model, and of its healthy twin.

    python -m benchmarks.planted                       # tests/doctor/planted, three seeds
    python -m benchmarks.planted --folder FOLDER NAME  # another folder, some of its files

A file of the folder holds `KIND`, `EXPECTED` (the headline that a perfect report gives),
`healthy()` and `broken()`; files with the same `TWIN` have the same healthy model, which is
examined once.
Whether a headline is right is a judgement: `judgements.toml` names for each file the cases that
are right. Writes benchmarks/results/planted.json.

    python -m benchmarks.planted --judge planted_first # a result again, by judgements.toml
"""

import argparse
import contextlib
import importlib.util
import io
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import torch

from clearhead.doctor import examine
from tools.forked import forked
from tools.result import FOLDER as RESULTS
from tools.result import write_result

FOLDER = Path(__file__).parent.parent / "tests" / "doctor" / "planted"
SEEDS = (0, 1, 2)
SECONDS = 600


def examine_file(file: Path, seed: int, full: bool, only_broken: bool) -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    said: dict[str, Any] = {"expected": module.EXPECTED}
    for state in ("broken",) if only_broken else ("healthy", "broken"):
        torch.manual_seed(seed)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                report = examine(
                    getattr(module, state)(), kind=module.KIND, seed=seed, quick=not full
                )
        except Exception as error:  # not recognised, or worse
            said[state] = {"error": f"{type(error).__name__}: {str(error)[:200]}"}
            continue
        found = report.headlines
        said[state] = {
            "headlines": [f.case for f in found if f.severity != "note"],
            "notes": [f.case for f in found if f.severity == "note"],
            "following": [f.case for f in report.findings if f.because is not None],
            "could not run": [outcome.check for outcome in report.not_run],
        }
    return said


def in_a_process(
    file: Path, seed: int, full: bool, twins: dict[tuple[str, int], dict[str, Any]]
) -> dict[str, Any]:
    """What is said of a file's models. `twins` keeps what was said of healthy ones."""
    named = re.search(r'^TWIN = "(.+)"', file.read_text(encoding="utf-8"), re.MULTILINE)
    twin = named[1] if named else file.stem
    said = _run(file, seed, full, only_broken=(twin, seed) in twins)
    return {"healthy": twins.setdefault((twin, seed), said.get("healthy", {})), **said}


def _run(file: Path, seed: int, full: bool, *, only_broken: bool) -> dict[str, Any]:
    try:
        return forked(examine_file, file, seed, full, only_broken, seconds=SECONDS)
    except RuntimeError as error:
        return {"expected": "", "broken": {"error": repr(error)}, "healthy": {"error": repr(error)}}


def said_only_of(broken: dict[str, Any], healthy: dict[str, Any]) -> list[str]:
    """The headlines, and notes behind them, that the healthy twin does not get."""
    said = [*broken.get("headlines", []), *broken.get("notes", [])]
    known = [*healthy.get("headlines", []), *healthy.get("notes", [])]
    return [case for case in said if case not in known]


def accepted(judged: dict[str, Any], name: str) -> list[str]:
    """The cases that are right, and those that the doctor has got because of this file."""
    entry = judged.get(name, {})
    return [*entry.get("right", []), *entry.get("added", [])]


def is_right(judged: dict[str, Any], name: str, headlines: list[str]) -> bool:
    """The first headline is one that is right for this bug, by its case or its check."""
    right = accepted(judged, name)
    return any(key in right for case in headlines[:1] for key in (case, case.partition(".")[0]))


def judgements(folder: Path) -> dict[str, Any]:
    path = folder / "judgements.toml"
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def judge(result: str, folder: Path) -> dict[str, int]:
    """Figures of a result that is there, from what was said then. Commit and date are the run's."""
    path, judged = RESULTS / f"{result}.json", judgements(folder)
    content = json.loads(path.read_text(encoding="utf-8"))
    figures = {"runs": 0, "flagged": 0, "right": 0, "false alarms": 0}
    for name, runs in content["files"].items():
        runs["accepted"] = accepted(judged, name)
        for said in [run for key, run in runs.items() if key.startswith("seed ")]:
            news = said_only_of(said["broken"], said["healthy"])
            said |= {"flagged": bool(news), "right": is_right(judged, name, news)}
            figures["runs"] += 1
            figures["flagged"] += said["flagged"]
            figures["right"] += said["right"]
            figures["false alarms"] += bool(said["healthy"].get("headlines"))
    content["figures"] = figures
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--full", action="store_true", help="with training and compilation")
    parser.add_argument("--judge", metavar="NAME", help="judge the result of this name again")
    parser.add_argument("--result", default="planted", help="the name of the result file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.judge is not None:
        print(judge(arguments.judge, arguments.folder))
        return
    files = sorted(f for f in arguments.folder.glob("*.py") if not f.name.startswith("_"))
    files = [f for f in files if not arguments.names or f.stem in arguments.names]
    judged = judgements(arguments.folder)
    runs: dict[str, dict[str, Any]] = {}
    twins: dict[tuple[str, int], dict[str, Any]] = {}
    flagged = right = alarms = total = 0
    for file in files:
        for seed in arguments.seeds:
            said = in_a_process(file, seed, arguments.full, twins)
            broken, healthy = said["broken"], said["healthy"]
            news = said_only_of(broken, healthy)
            verdict = {"flagged": bool(news), "right": is_right(judged, file.stem, news)}
            total, alarms = total + 1, alarms + bool(healthy.get("headlines"))
            flagged, right = flagged + verdict["flagged"], right + verdict["right"]
            told = {"expected": said.pop("expected"), "accepted": accepted(judged, file.stem)}
            runs.setdefault(file.stem, told)[f"seed {seed}"] = {**verdict, **said}
            print(
                f"{file.stem:36} {seed}  {broken}\n{'':36}    healthy: {healthy}",
                flush=True,
            )
    figures = {"runs": total, "flagged": flagged, "right": right, "false alarms": alarms}
    print(figures)
    if not arguments.names:
        write_result(arguments.result, {"figures": figures, "files": runs})


if __name__ == "__main__":
    main()
