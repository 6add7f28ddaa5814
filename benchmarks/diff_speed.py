"""How long `diff` takes, and how much memory: GPT-2 of 124 M parameters with random weights, beside
a port of it, healthy and with one bug.

    python -m benchmarks.diff_speed

Writes benchmarks/results/diff_speed.json. Take it on an idle machine.
"""

import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import transformers

from clearhead.doctor.diff import diff
from tests.doctor.diff import planted
from tools.forked import forked
from tools.result import write_result


def measure(name: str) -> dict[str, Any]:
    """One comparison: healthy, or with the planted bug of this name."""
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(bos_token_id=1, eos_token_id=2)
    ).eval()
    bugs = [b for b in planted.BUGS if (b.family, b.name) == ("gpt2", name)]
    with tempfile.TemporaryDirectory() as folder:
        port = planted.port("gpt2", model, Path(folder), *bugs)
        started = time.monotonic()
        report = diff(model, port, kind="decoder", steps=False, seconds=600)
        seconds = time.monotonic() - started
        return {
            "seconds": round(seconds, 1),
            "peak memory in GB, with Python, torch and both models": round(
                resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2
            ),
            "same": report.same,
            "departures": [
                f"{d.line}: {d.cause.kind if d.cause else None}, {d.count} places"
                for d in report.departures
            ],
            "common tensors": f"{report.walk.n_common} of {report.walk.n_operations}",
        }


def main() -> None:
    torch.set_num_threads(2)
    names = ("healthy", "scale", "erf")
    measured = {name: forked(measure, name, seconds=1200) for name in names}
    print(measured)
    write_result("diff_speed", measured)


if __name__ == "__main__":
    main()
