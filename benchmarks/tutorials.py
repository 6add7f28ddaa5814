"""The doctor on the five tutorials that this project grew out of, by the command line, in English
and in Chinese.

    CLEARHEAD_WILD=FOLDER python -m benchmarks.tutorials

`ROWS` are the defects that show in behaviour; `CONTAINS` says which of them each tutorial contains
as it is built here, and which cases of the doctor name them. What else is found, notes apart, is
listed, unless it is in `ALSO_TRUE`. Writes benchmarks/results/tutorials.json.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.doctor.wild.models import FOLDER
from tools.result import write_result

PAIR, DECODER = "encoder-decoder", "decoder"
ROWS = {
    1: "the residual is taken after the norm",
    3: "one sequence feeds encoder and decoder",
    10: "dropout on the embedding is applied twice",
    11: "no √d_model on embeddings beside sinusoids",
    12: "generation leaves dropout on",
    13: "temperature=0 and top_k=0 fail inside torch",
    14: "no stop at the end of a sequence",
    22: "generation never crops to the table of positions",
    25: "returned attention weights are taken after dropout",
    26: "a batch without a target that counts has the loss NaN",
    28: "there is no attention at all",
}
_GENERATES = {
    12: ("greedy.train",),
    13: ("temperature.zero", "top_k.zero"),
    14: ("stops.no_setting",),
}
_ONE_SEQUENCE = {
    1: ("residual.after_norm",),
    3: ("causal.one_sequence",),
    11: ("embedding_scale.drowned",),
    26: ("ignored_targets.none_left",),
}
# The number of the tutorial: its kind, and row → the cases that name it. Lengths of source and
# target that differ, and padding, cannot be asked of models that take one sequence and know no
# padding: they follow from row 3.
CONTAINS: dict[int, tuple[str, dict[int, tuple[str, ...]]]] = {
    0: (PAIR, {**_ONE_SEQUENCE, **_GENERATES, 10: ("dropout.twice",)}),
    1: (
        DECODER,
        {
            **_GENERATES,
            22: ("past_the_limit.crash",),
            25: ("returned_weights.train",),
            26: ("ignored_targets.none_left",),
        },
    ),
    2: (
        PAIR,
        {
            10: ("dropout.twice",),
            26: ("ignored_targets.none_left",),
            28: ("context.alone", "gradients.none"),
        },
    ),
    3: (PAIR, _ONE_SEQUENCE),
    4: (PAIR, {**_ONE_SEQUENCE, **_GENERATES, 10: ("dropout.twice",)}),
}
ALSO_TRUE = {
    "ignored_targets.token": "token 0 is a word, and ignore_index=0 leaves it out",
    "positions.tokens": "tutorial 2 has no positions",
}


def doctor(target: str, kind: str, language: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "clearhead", "doctor", target, "--kind", kind]
    command += ["--quick", "--json", "--language", language]
    run = subprocess.run(command, capture_output=True, text=True)
    return run.returncode, run.stdout, run.stderr


def examine_one(number: int) -> dict[str, Any]:
    kind, rows = CONTAINS[number]
    target = str(FOLDER / "tutorials" / f"seed{number}" / "check.py") + ":build"
    said: dict[str, Any] = {}
    for language in ("en", "zh"):
        code, out, err = doctor(target, kind, language)
        try:
            report = json.loads(out)
        except ValueError:
            said[language] = {"exit": code, "error": err.strip()[-200:]}
            continue
        cases = {finding["case"]: finding["severity"] for finding in report["findings"]}
        headlines = [f["case"] for f in report["findings"] if f["because"] is None]
        known = {case for accepted in rows.values() for case in accepted} | set(ALSO_TRUE)
        said[language] = {
            "exit": code,
            "could not run": report["could_not_run"],
            "headlines": headlines,
            "rows named": sorted(r for r, accepted in rows.items() if set(accepted) <= set(cases)),
            "rows missed": sorted(r for r, accepted in rows.items() if set(accepted) - set(cases)),
            "beyond the list": sorted(
                case for case, severity in cases.items() if severity != "note" and case not in known
            ),
        }
    return said


def stops() -> dict[str, Any]:
    """Listings as tutorials print them, with an import forgotten, end with 2 and one line."""
    listing = (FOLDER / "tutorials" / "seed0" / "tutorial.py").read_text(encoding="utf-8")
    builder = (FOLDER / "tutorials" / "seed0" / "check.py").read_text(encoding="utf-8")
    said: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {
            "math is not imported": listing.replace("import math\n", ""),
            "an indent is wrong": listing.replace("    def forward", "   def forward", 1),
        }.items():
            Path(folder, "tutorial.py").write_text(text, encoding="utf-8")
            Path(folder, "check.py").write_text(builder, encoding="utf-8")
            code, out, err = doctor(f"{folder}/check.py:build", PAIR, "en")
            line = err.strip().replace(folder, "…")
            said[name] = {"exit": code, "standard output": out, "standard error": line}
    return said


def main() -> None:
    results: dict[str, Any] = {}
    for number in CONTAINS:
        results[f"tutorial {number}"] = examine_one(number)
        print(number, json.dumps(results[f"tutorial {number}"]), flush=True)
    stopped = stops()
    print(json.dumps(stopped, indent=2))
    measured = {"rows": ROWS, "tutorials": results, "listings that stop": stopped}
    write_result("tutorials", measured)


if __name__ == "__main__":
    main()
