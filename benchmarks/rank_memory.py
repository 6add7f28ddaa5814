"""The planner's memory of a rank against real training steps on this machine: one process, and two
and four that share the model (FSDP2 over gloo). The peak is what the operating system counts
(VmHWM) above what the process had before the model was built.

    python -m benchmarks.rank_memory
"""

import argparse
import json
import os
import subprocess
import sys
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks.result import FOLDER, write_result
from clearhead.config import ModelConfig, TrainConfig
from clearhead.data.batches import TokenBatch
from clearhead.scale.memory import RankLayout, rank_memory
from clearhead.training.distributed import Ranks, build_objective, joined
from clearhead.training.optimizer import make_optimizers
from clearhead.training.step import take_step

_ADJUSTED = ModelConfig(
    family="decoder",
    vocab_size=12_000,
    d_model=512,
    n_layers=8,
    n_heads=8,
    d_ff=2048,
    positions="rotary",
    norm="rms",
    feed_forward="swiglu",
    bias=False,
    max_length=256,
    p_dropout=0.0,
)
MODELS = {
    # What is gathered and reduced at which moment was found with the first one; the second one is
    # only compared.
    "llama-like, tied": _ADJUSTED,
    "gpt-like, untied": replace(
        _ADJUSTED,
        vocab_size=7_000,
        d_model=384,
        n_layers=11,
        n_heads=6,
        d_ff=1536,
        positions="learned",
        norm="layer",
        feed_forward="gelu",
        bias=True,
        max_length=192,
        tie_output=False,
    ),
}
ROWS, STEPS = 2, 2
RANKS = (1, 2, 4)
RESULT = FOLDER / "rank_memory.json"
# With these a freed tensor goes back to the system at once: what is counted is what is held.
RETURN_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}


def config(n_ranks: int, recompute: bool) -> TrainConfig:
    return TrainConfig(parallel="fsdp" if n_ranks > 1 else "ddp", recompute=recompute)


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


def work(name: str, n_ranks: int, recompute: bool, out: Path) -> None:
    """In each process: a tiny model first, so that what torch loads once is not counted."""
    torch.set_num_threads(1)
    train = config(n_ranks, recompute)
    with joined(train) as ranks:
        model = MODELS[name]
        tiny = replace(model, d_model=8 * model.n_heads, n_layers=1, d_ff=64, vocab_size=100)
        take_steps(tiny, train, ranks, 1)
        before = resident("VmRSS")
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # VmHWM starts again
        take_steps(model, train, ranks, ROWS)
        peaks = ranks.gather(resident("VmHWM") - before)
        if ranks.first:
            out.write_text(json.dumps(peaks), encoding="utf-8")


def measure(name: str, n_ranks: int, recompute: bool) -> int:
    """The first rank's, whose shares are the largest."""
    with TemporaryDirectory() as folder:
        out = Path(folder) / "peaks.json"
        launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={n_ranks}"]
        arguments = ["--work", name, str(n_ranks), str(int(recompute)), str(out)]
        subprocess.run(
            [sys.executable, *launch, "-m", "benchmarks.rank_memory", *arguments],
            env={**os.environ, **RETURN_MEMORY, "OMP_NUM_THREADS": "1"},
            check=True,
        )
        return json.loads(out.read_text(encoding="utf-8"))[0]


def case(recompute: bool, n_ranks: int) -> str:
    return f"recompute {recompute}, ranks {n_ranks}"


def compared(name: str, measured: dict[str, float]) -> dict[str, dict[str, float]]:
    """Each case, and each difference between numbers of ranks, with the planner's figure."""
    model, rows = MODELS[name], {}
    for recompute in (False, True):
        sizes: dict[int, tuple[float, float]] = {}
        for n_ranks in RANKS:
            if (found := measured.get(case(recompute, n_ranks))) is not None:
                layout = RankLayout(shard=n_ranks, rows=ROWS, recompute=recompute)
                train = config(n_ranks, recompute)
                planned = rank_memory(model, train, layout, length=model.max_length).peak / 1e6
                sizes[n_ranks] = (found, planned)
                rows[case(recompute, n_ranks)] = _row(found, planned)
        for few, many in combinations(sizes, 2):
            drops = [a - b for a, b in zip(sizes[few], sizes[many])]
            rows[f"recompute {recompute}, from {few} to {many}"] = _row(*drops)
    return rows


def _row(measured: float, planned: float) -> dict[str, float]:
    return {
        "measured_mb": round(measured, 1),
        "planned_mb": round(planned, 1),
        "error": round(planned / measured - 1, 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", nargs=4, metavar=("MODEL", "RANKS", "RECOMPUTE", "FILE"))
    arguments = parser.parse_args()
    if arguments.work:
        name, ranks, recompute, out = arguments.work
        work(name, int(ranks), bool(int(recompute)), Path(out))
        return
    found: dict[str, dict[str, float]] = {name: {} for name in MODELS}
    if RESULT.is_file():  # an interrupted run resumes
        found |= json.loads(RESULT.read_text(encoding="utf-8"))["measured_mb"]
    for name, recompute, n_ranks in product(MODELS, (False, True), RANKS):
        if case(recompute, n_ranks) not in found[name]:
            size = measure(name, n_ranks, recompute) / 1e6
            found[name][case(recompute, n_ranks)] = round(size, 1)
            write_result("rank_memory", {"measured_mb": found})
    for name in MODELS:
        for what, row in compared(name, found[name]).items():
            print(f"{name}, {what}: {row}")


if __name__ == "__main__":
    main()
