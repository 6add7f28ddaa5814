"""The planner's memory of a rank against real training steps on this machine: one process, and two
and four that share the model (FSDP2 and tensor parallel over gloo). The peak is what the operating
system counts (VmHWM) above what the process had before the model was built.

    python -m benchmarks.rank_memory             # and the tables of docs/*/scale.md
"""

import argparse
import json
import os
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from clearhead.config import ModelConfig, TrainConfig
from clearhead.data.batches import TokenBatch
from clearhead.training.distributed import Ranks, build_objective, joined_ranks
from clearhead.training.optimizer import make_optimizers
from clearhead.training.step import take_step
from tools import rank_memory_page
from tools.rank_memory_page import LAYOUTS, MODELS, ROWS, case, config
from tools.result import write_result

STEPS = 2
# With these a freed tensor goes back to the system at once: what is counted is what is held.
RETURN_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}


def resident(key: str) -> int:
    """Bytes of this process: VmRSS now, VmHWM at most."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))


def take_steps(model: ModelConfig, train: TrainConfig, ranks: Ranks, rows: int) -> None:
    objective = build_objective(model, train, ranks, packed=False)
    optimizers = make_optimizers(objective, train)
    tokens = torch.ones(rows, model.max_length, dtype=torch.long)
    batch = TokenBatch(inputs=tokens, targets=tokens, documents=tokens, samples=())
    for _ in range(STEPS):
        take_step(objective, optimizers, batch, ranks=ranks, lr=1e-3, clip_norm=1.0)


def work(name: str, layout: str, recompute: bool, out: Path) -> None:
    """In each process: a tiny model first, so that what torch loads once is not counted."""
    torch.set_num_threads(1)
    train = config(LAYOUTS[layout], recompute)
    with joined_ranks(train) as ranks:
        model = MODELS[name]
        tiny = replace(model, d_model=8 * model.n_heads, n_layers=1, d_ff=64, vocab_size=100)
        take_steps(tiny, train, ranks, 1)
        before = resident("VmRSS")
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # VmHWM starts again
        take_steps(model, train, ranks, ROWS)
        peaks = ranks.gather(resident("VmHWM") - before)
        if ranks.first:
            out.write_text(json.dumps(peaks), encoding="utf-8")


def measure(name: str, layout: str, recompute: bool) -> int:
    """The first rank's, whose shares are the largest."""
    n_ranks = LAYOUTS[layout].ranks
    with TemporaryDirectory() as folder:
        out = Path(folder) / "peaks.json"
        launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={n_ranks}"]
        arguments = ["--work", name, layout, str(int(recompute)), str(out)]
        subprocess.run(
            [sys.executable, *launch, "-m", "benchmarks.rank_memory", *arguments],
            env={**os.environ, **RETURN_MEMORY, "OMP_NUM_THREADS": "1"},
            check=True,
        )
        return json.loads(out.read_text(encoding="utf-8"))[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", nargs=4, metavar=("MODEL", "LAYOUT", "RECOMPUTE", "FILE"))
    arguments = parser.parse_args()
    if arguments.work:
        name, layout, recompute, out = arguments.work
        work(name, layout, bool(int(recompute)), Path(out))
        return
    found: dict[str, dict[str, float]] = {name: {} for name in MODELS}
    for name, recompute, layout in product(MODELS, (False, True), LAYOUTS):
        size = measure(name, layout, recompute) / 1e6
        found[name][case(recompute, layout)] = round(size, 1)
        print(f"{name}, {case(recompute, layout)}: {size:.1f} MB", flush=True)
    write_result("rank_memory", {"measured_mb": found})
    rank_memory_page.main()


if __name__ == "__main__":
    main()
