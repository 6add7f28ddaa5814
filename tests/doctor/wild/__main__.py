"""The doctor on other people's Transformers, against a judgement of every finding.

    CLEARHEAD_WILD=FOLDER python -m tests.doctor.wild            # all of them, then the figures
    CLEARHEAD_WILD=FOLDER python -m tests.doctor.wild nanoGPT    # one, with its report

Each model is examined in a process of its own. `judgements.toml` says of every finding whether
it is true, harmless or false, and why; a finding without a judgement counts as false. What a report
shows as following from another finding is judged too, and counted apart. Writes
benchmarks/results/wild.json.
"""

import argparse
import contextlib
import io
import json
import time
import tomllib
from pathlib import Path
from typing import Any

import torch

from clearhead.doctor import examine
from tests.doctor.wild.models import WILD, Wild
from tools.forked import forked
from tools.result import write_result

JUDGEMENTS = Path(__file__).parent / "judgements.toml"
SECONDS = 600


def examine_one(wild: Wild, quick: bool, show: bool) -> dict[str, Any]:
    """In this process: what the command line would say of it."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    started = time.monotonic()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            report = examine(wild.build(), kind=wild.kind, quick=quick)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        return {"recognised": None, "error": text if show else text[:300], "findings": []}
    if show:
        print(report)
    return {
        "recognised": dict(report.recognised),
        "findings": [
            {"case": f.case, "severity": f.severity, "place": f.place, "because": f.because}
            for f in report.findings
        ],
        "could not run": {
            o.check: o.reason for o in report.outcomes if o.status == "could not run"
        },
        "seconds": round(time.monotonic() - started, 1),
    }


def in_a_process(wild: Wild, quick: bool) -> dict[str, Any]:
    try:
        return forked(examine_one, wild, quick, False, seconds=SECONDS)
    except RuntimeError as error:
        return {"recognised": None, "error": str(error), "findings": []}


def judgement(judgements: dict[str, Any], wild: Wild, case: str) -> str:
    """For this model, or for all models; what nobody has judged counts as false."""
    for name in (wild.name, "everywhere"):
        judged = judgements.get(name, {}).get(case)
        if judged is not None:
            return judged["verdict"]
    return "not judged"


def figures(results: dict[str, Any]) -> dict[str, Any]:
    known = tomllib.loads(JUDGEMENTS.read_text(encoding="utf-8")) if JUDGEMENTS.exists() else {}
    levels, verdicts = ("error", "warning", "note"), ("true", "harmless", "false", "not judged")
    counts, following = ({n: dict.fromkeys(verdicts, 0) for n in levels} for _ in range(2))
    for wild in WILD:
        for finding in results.get(wild.name, {}).get("findings", []):
            finding["verdict"] = judgement(known, wild, finding["case"])
            counted = counts if finding["because"] is None else following
            counted[finding["severity"]][finding["verdict"]] += 1
    examined = [name for name in results if "missing" not in results[name]]
    return {
        "examined": len(examined),
        "recognised": sum(results[name]["recognised"] is not None for name in examined),
        "headlines": counts,
        "shown as following from a headline": following,
        "precision of headlines": {
            level: round(count["true"] / max(sum(count.values()), 1), 3)
            for level, count in counts.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="the beginning of a name; all, if none is given")
    parser.add_argument("--full", action="store_true", help="with training and compilation")
    arguments = parser.parse_args()
    chosen = [w for w in WILD if not arguments.names or w.name.startswith(tuple(arguments.names))]
    if len(chosen) == 1:
        print(json.dumps(examine_one(chosen[0], quick=not arguments.full, show=True), indent=2))
        return
    results: dict[str, Any] = {}
    for wild in chosen:
        if not wild.here:
            results[wild.name] = {"missing": str(wild.file), "findings": [], "recognised": None}
            continue
        found = in_a_process(wild, not arguments.full)
        results[wild.name] = {"repository": wild.repository, "commit": wild.commit, **found}
        named = " ".join(f"{f['severity'][0].upper()}:{f['case']}" for f in found["findings"])
        seen = "" if found["recognised"] else f"NOT RECOGNISED {found['error'][:150]!r}"
        stopped = found.get("could not run") or ""
        print(f"{wild.name:45} {found.get('seconds', 0):5} s  {seen}{named} {stopped}", flush=True)
    counted = figures(results)
    print(json.dumps(counted, indent=2))
    if not arguments.names:
        write_result("wild", {"figures": counted, "models": results})


if __name__ == "__main__":
    main()
