"""One training step (forward, loss, backward, clip, AdamW) of our models against the same network
in bare torch, torch's own classes and Hugging Face's. Interleaved, as ratios of the fastest steps
and of the medians. Each finished row is written, and the same command continues with those that
are missing.

    python -m benchmarks.step
    python -m benchmarks.step --profile    # where our time goes; writes step_profile.json
    python -m benchmarks.step --trainer    # the whole loop, and two ranks; writes step_trainer.json
    python -m benchmarks.step --trainer --before ../earlier    # the loop of another checkout and
                                           # ours, in turns; writes step_before_after.json
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks import trainer
from benchmarks.bare_step import (
    SETTINGS,
    Setting,
    all_times,
    best_times,
    our_step,
    rival_step,
    shares_of,
)
from clearhead.environment import keep_freed_memory
from tools.result import FOLDER, commit_of, write_result


def matmul_peak(rounds: int = 20) -> float:
    """FLOP/s of a large square product in fp32."""
    a, b = torch.randn(2, 1536, 1536)

    def product() -> None:
        torch.mm(a, b)

    seconds = best_times({"product": product}, rounds)["product"]
    return 2 * 1536**3 / seconds


def measure(setting: Setting, p_dropout: float, rounds: int) -> dict[str, Any]:
    steps = {"clearhead": our_step(setting, p_dropout)}
    for name, model in setting.rivals(p_dropout).items():
        steps[name] = rival_step(setting, model)
    times = all_times(steps, rounds)
    seconds = {name: min(each) for name, each in times.items()}
    medians = {name: median(each) for name, each in times.items()}
    ours = seconds["clearhead"]
    return {
        "setting": setting.name,
        "dropout": p_dropout,
        "milliseconds": {name: round(1000 * t, 2) for name, t in seconds.items()},
        "our_speed_relative_to": {
            name: round(t / ours, 3) for name, t in seconds.items() if name != "clearhead"
        },
        "median_milliseconds": {name: round(1000 * t, 2) for name, t in medians.items()},
        "our_median_speed_relative_to": {
            name: round(t / medians["clearhead"], 3)
            for name, t in medians.items()
            if name != "clearhead"
        },
        "tokens_per_second": round(setting.size.batch * setting.size.length / ours),
        "gflops": setting.matmul_flops() / ours / 1e9,
    }


def profile(setting: Setting, p_dropout: float) -> dict[str, float]:
    """The operators that take most of our step, and their share of its time."""
    return shares_of(our_step(setting, p_dropout))


def write_profiles() -> None:
    rows = []
    for setting in SETTINGS:
        for p_dropout in (0.0, 0.1):
            shares = profile(setting, p_dropout)
            rows.append({"setting": setting.name, "dropout": p_dropout, "shares": shares})
            print(f"{setting.name}, dropout {p_dropout}")
            print("".join(f"{share:>8.1%}  {name}\n" for name, share in shares.items()))
    print("written:", write_result("step_profile", {"profiles": rows}).name)


def write_trainer(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        corpus = trainer.make_corpus(Path(folder))
        loop = trainer.whole_loop(corpus, Path(folder) / "run", rounds + 1)
        print(json.dumps(loop, indent=2), flush=True)
        ranks = trainer.measure_ranks(corpus, rounds)
        print(json.dumps(ranks, indent=2))
    print("written:", write_result("step_trainer", {"loop": loop, "ranks": ranks}).name)


def write_before_and_after(earlier: Path, rounds: int) -> None:
    found = trainer.before_and_after(earlier, rounds)
    found["before"]["commit"] = commit_of(earlier)
    print("written:", write_result("step_before_after", found).name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="steps of each contestant")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--default-malloc", action="store_true", help="leave glibc as it is")
    parser.add_argument("--name", default="step", help="of the result file")
    parser.add_argument("--minutes", type=float, default=1e9, help="start no row after these")
    parser.add_argument("--again", action="store_true", help="forget the rows that are there")
    parser.add_argument("--profile", action="store_true", help="where our time goes, instead")
    parser.add_argument("--trainer", action="store_true", help="the whole loop, instead")
    parser.add_argument("--before", type=Path, help="with --trainer: an earlier checkout")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    kept = False if arguments.default_malloc else keep_freed_memory()

    if arguments.profile:
        write_profiles()
        return
    if arguments.before is not None:
        write_before_and_after(arguments.before, arguments.rounds)
        return
    if arguments.trainer:
        write_trainer(arguments.rounds)
        return

    deadline = time.monotonic() + 60 * arguments.minutes
    path = FOLDER / f"{arguments.name}.json"
    before = json.loads(path.read_text("utf-8")) if path.exists() and not arguments.again else {}
    rows: list[dict[str, Any]] = before.get("steps", [])
    done = {(row["setting"], row["dropout"]) for row in rows}
    print(f"{'setting':<28}{'dropout':>8}{'bare':>8}{'nn.Tr.':>8}{'HF':>8}{'ms':>9}{'peak':>7}")
    for setting in SETTINGS:
        for p_dropout in (0.0, 0.1):
            if (setting.name, p_dropout) in done or time.monotonic() > deadline:
                continue
            peak = matmul_peak()
            row = measure(setting, p_dropout, arguments.rounds)
            peak = max(peak, matmul_peak())  # a disturbance must not pass for a low peak
            row["utilisation_of_matmul_peak"] = round(row.pop("gflops") * 1e9 / peak, 3)
            rows.append(row)
            measured = {"rounds": arguments.rounds, "freed_memory_kept": kept, "steps": rows}
            write_result(arguments.name, measured)
            ratios = "".join(f"{ratio:>8.2f}" for ratio in row["our_speed_relative_to"].values())
            ms, share = row["milliseconds"]["clearhead"], row["utilisation_of_matmul_peak"]
            print(f"{setting.name:<28}{p_dropout:>8}{ratios}{ms:>9.1f}{share:>7.0%}", flush=True)
    print("Ratios are our speed over theirs: above 1, ours is the faster.")


if __name__ == "__main__":
    main()
