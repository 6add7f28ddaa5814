"""transformer-doctor without clearhead, transformers and rich: planted bugs and healthy models.

    python benchmarks/doctor_alone.py [--result FILE] [NAME …]

.ci/doctor_wheel runs it in an environment that has nothing but torch and the wheel. It fails if a
planted bug is not flagged, or if a healthy model gets an error or a warning that is not known.
"""

import argparse
import importlib.util
import json
import sys
import tomllib
import types
from itertools import chain
from pathlib import Path
from typing import Any

import torch
import transformer_doctor  # pyright: ignore[reportMissingImports]

ROOT = Path(__file__).resolve().parent.parent
PLANTED = ROOT / "tests" / "doctor" / "planted"
KNOWN = {"dtypes.differs"}
"""True of a healthy twin: its complex table loses its imaginary part in double precision."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="the beginnings of names; all, if none is given")
    parser.add_argument("--result", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    present = [name for name in ("clearhead", "transformers", "rich") if _is_there(name)]
    print(f"torch {torch.__version__}, beside it: {', '.join(present) or 'nothing'}")
    assert "clearhead" not in present
    chosen = tuple(arguments.names)
    found: dict[str, Any] = {}
    for name, cases in chain(_planted(chosen), _specimens(chosen)):
        found[name] = cases
        print(f"{name:60} {cases}", flush=True)
    if arguments.result is not None:
        text = json.dumps({"torch": torch.__version__, "found": found}, indent=1)
        arguments.result.write_text(text + "\n", encoding="utf-8")
    wrong = {name: cases for name, cases in found.items() if cases["wrong"]}
    print(f"{len(found)} models, {len(wrong)} of them wrong")
    if wrong:
        sys.exit(json.dumps(wrong, indent=1))


def _is_there(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def _planted(chosen: tuple[str, ...]):
    """Of each file: what is said of the broken model, and of the healthy one."""
    judged = tomllib.loads((PLANTED / "judgements.toml").read_text(encoding="utf-8"))
    for file in sorted(PLANTED.glob("[!_]*.py")):
        if chosen and not file.stem.startswith(chosen):
            continue
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[file.stem] = module
        spec.loader.exec_module(module)
        entry = judged.get(file.stem, {})
        right = [*entry.get("right", []), *entry.get("added", [])]
        for state in ("broken", "healthy"):
            torch.manual_seed(0)
            model = getattr(module, state)()
            report = transformer_doctor.examine(model, kind=module.KIND, quick=True)
            severe = [f.case for f in report.headlines if f.severity != "note"]
            every = [f.case for f in report.headlines]
            if state == "broken":
                wrong = not any(c in right or c.partition(".")[0] in right for c in every)
            else:
                wrong = bool(set(severe) - KNOWN)
            notes = [f.case for f in report.headlines if f.severity == "note"]
            yield (
                f"{file.stem} ({state})",
                {"found": severe, "notes": notes, "wrong": wrong},
            )


def _specimens(chosen: tuple[str, ...]):
    """The specimens of the tests: each defect is named by the check that is there for it."""
    package = types.ModuleType("clearhead")
    sys.modules |= {"clearhead": package, "clearhead.doctor": transformer_doctor}
    sys.path.insert(0, str(ROOT))
    from tests.doctor.specimens import around, attentions, inside, layers, pairs, serving, uses

    for group in (around, attentions, layers, uses, pairs, inside, serving):
        for specimen in group.SPECIMENS:
            if chosen and not specimen.name.startswith(chosen):
                continue
            for state, build, wanted in (
                ("ill", specimen.ill, True),
                ("healthy", specimen.twin, False),
            ):
                torch.manual_seed(0)
                model = build()
                report = transformer_doctor.examine(
                    model,
                    kind=specimen.kind,
                    calls=getattr(type(model), "calls", None),
                    only=[specimen.check],
                    **specimen.how,
                )
                cases = sorted({finding.case for finding in report.findings})
                wrong = (specimen.case in cases) is not wanted
                yield f"{specimen.name} ({state})", {"found": cases, "wrong": wrong}


if __name__ == "__main__":
    main()
