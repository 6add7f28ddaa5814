"""How long a quick examination takes, and how much memory: GPT-2's 124 M parameters with fresh
weights, and a small model.

    python -m benchmarks.doctor_speed

Writes benchmarks/results/doctor_speed.json. Take it on an idle machine.
"""

import resource
import time
from typing import Any

import torch
import transformers

from clearhead.doctor import examine
from tools.forked import forked
from tools.result import write_result

SIZES: dict[str, dict[str, Any]] = {
    "GPT-2, 124 M parameters": {},
    "GPT-2, 2 layers of width 64": {
        "n_embd": 64,
        "n_layer": 2,
        "n_head": 4,
        "vocab_size": 256,
        "n_positions": 64,
    },
}


def measure(sizes: dict[str, Any]) -> dict[str, Any]:
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(bos_token_id=1, eos_token_id=2, **sizes)
    )
    started = time.monotonic()
    report = examine(model, quick=True)
    seconds = time.monotonic() - started
    slowest = sorted(report.outcomes, key=lambda outcome: -outcome.seconds)[:5]
    return {
        "seconds": round(seconds, 1),
        "peak memory in GB, with Python and torch": round(
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2
        ),
        "slowest checks": {outcome.check: round(outcome.seconds, 1) for outcome in slowest},
        "errors and warnings": [f.case for f in report.findings if f.severity != "note"],
        "could not run": [outcome.check for outcome in report.not_run],
    }


def main() -> None:
    torch.set_num_threads(2)
    measured = {name: forked(measure, sizes, seconds=600) for name, sizes in SIZES.items()}
    print(measured)
    write_result("doctor_speed", measured)


if __name__ == "__main__":
    main()
