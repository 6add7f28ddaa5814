"""What a step of Muon costs on the processor: torch's, which multiplies in bf16, and ours, in fp32.

    python -m benchmarks.muon_step

The matrices are those of the recipe multi30k-de-en. Each row is a process of its own that may use
only a part of this processor's instructions (switches of oneDNN and MKL), since what bf16 costs
depends on them: AVX2 is what most laptops have. One thread, the fastest of several steps.
"""

import argparse
import json
import os
import subprocess
import sys
import time

import torch
from torch import nn

from clearhead.config import load_recipe
from clearhead.models import build_model
from clearhead.training.muon import Muon
from tools.result import write_result

INSTRUCTIONS: dict[str, dict[str, str]] = {
    "all": {},
    "AVX-512": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"},
    "AVX2": {
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "ATEN_CPU_CAPABILITY": "avx2",
    },
}
RECIPE = "multi30k-de-en"
ROUNDS = 8


def milliseconds(kind: type[torch.optim.Optimizer], shapes: list[torch.Size]) -> float:
    draw = torch.Generator().manual_seed(1)
    matrices = [nn.Parameter(torch.randn(shape, generator=draw)) for shape in shapes]
    optimizer = kind(matrices, lr=0.01, adjust_lr_fn="match_rms_adamw")  # pyright: ignore
    for matrix in matrices:
        matrix.grad = torch.randn(matrix.shape, generator=draw)
    times: list[float] = []
    for _ in range(ROUNDS):
        started = time.process_time()
        optimizer.step()
        times.append(time.process_time() - started)
    return round(1000 * min(times), 1)


def measure() -> dict[str, float]:
    torch.set_num_threads(1)
    config = load_recipe(RECIPE).model
    assert config is not None
    linears = [m for m in build_model(config).modules() if isinstance(m, nn.Linear)]
    shapes = [linear.weight.shape for linear in linears]
    kinds = {"torch, bf16": torch.optim.Muon, "ours, fp32": Muon}
    return {
        "matrices": len(shapes),
        **{name: milliseconds(kind, shapes) for name, kind in kinds.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", action="store_true", help="measure in this process, and print")
    if parser.parse_args().one:
        print(json.dumps(measure()))
        return
    command = [sys.executable, "-m", "benchmarks.muon_step", "--one"]
    rows: dict[str, dict[str, float]] = {}
    for name, variables in INSTRUCTIONS.items():
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
        rows[name] = json.loads(subprocess.check_output(command, env=environment))
        print(name, rows[name], flush=True)
    torch.set_num_threads(1)
    print(write_result("muon_step", {"recipe": RECIPE, "milliseconds": rows}))


if __name__ == "__main__":
    main()
