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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks import rivals
from benchmarks.result import FOLDER, commit_of, write_result
from benchmarks.rivals import PAD, Size
from clearhead.config import ModelConfig
from clearhead.environment import keep_freed_memory
from clearhead.models import build_model
from clearhead.training.loss import cross_entropy
from clearhead.training.optimizer import adamw

Step = Callable[[], None]


@dataclass(frozen=True)
class Setting:
    name: str
    family: str
    size: Size

    def our_config(self, p_dropout: float) -> ModelConfig:
        decoder = self.family == "decoder"
        size = self.size
        return ModelConfig(
            family="decoder" if decoder else "encoder-decoder",
            vocab_size=size.vocab_size,
            d_model=size.d_model,
            n_heads=size.n_heads,
            d_ff=size.d_ff,
            n_layers=size.n_layers,
            max_length=size.length,
            positions="learned" if decoder else "sinusoidal",
            embedding_scale=not decoder,
            norm_placement="pre" if decoder else "post",
            feed_forward="gelu-tanh" if decoder else "relu",
            p_dropout=p_dropout,
            p_attention_dropout=p_dropout,
        )

    def rivals(self, p_dropout: float) -> dict[str, nn.Module]:
        if self.family == "decoder":
            classes = (rivals.BareDecoder, rivals.TorchDecoder, rivals.HuggingFaceGPT2)
        else:
            classes = (rivals.BareSeq2Seq, rivals.TorchSeq2Seq, rivals.HuggingFaceMarian)
        names = ("bare torch", "nn.Transformer", "Hugging Face")
        return {name: cls(self.size, p_dropout) for name, cls in zip(names, classes)}

    def batch(self) -> tuple[list[Tensor], Tensor]:
        """Inputs and targets. Sources are 75-100 % full, as bucketed batches are."""
        size, generator = self.size, torch.Generator().manual_seed(0)
        shape = (size.batch, size.length)
        tokens = torch.randint(1, size.vocab_size, shape, generator=generator)
        targets = torch.randint(1, size.vocab_size, shape, generator=generator)
        if self.family == "decoder":
            return [tokens], targets
        shortest = size.length * 3 // 4
        lengths = torch.randint(shortest, size.length + 1, (size.batch, 1), generator=generator)
        source = tokens.masked_fill(torch.arange(size.length) >= lengths, PAD)
        return [source, tokens], targets

    def matmul_flops(self) -> float:
        """Of one step: 2 per multiply-add, forward once and backward twice."""
        s = self.size
        attention = 4 * s.d_model**2 + 2 * s.length * s.d_model
        feed_forward = 2 * s.d_model * s.d_ff
        if self.family == "decoder":
            per_token = s.n_layers * (attention + feed_forward)
        else:
            per_token = s.n_layers * (3 * attention + 2 * feed_forward)
        return 3 * 2 * s.batch * s.length * (per_token + s.d_model * s.vocab_size)


SETTINGS = [
    Setting("decoder 6 × 384", "decoder", Size(384, 6, 1536, 6, 8000, 256, 8)),
    Setting("encoder-decoder 3+3 × 256", "encoder-decoder", Size(256, 4, 1024, 3, 8000, 20, 64)),
    Setting("encoder-decoder 4+4 × 128", "encoder-decoder", Size(128, 4, 256, 4, 6000, 16, 256)),
]


def our_step(setting: Setting, p_dropout: float) -> Step:
    model = build_model(setting.our_config(p_dropout))
    optimizer = adamw(model, lr=1e-4)
    inputs, targets = setting.batch()
    options = {"real": "all"} if setting.family == "decoder" else {"target_real": "all"}

    def step() -> None:
        loss = cross_entropy(model(*inputs, **options), targets, ignore_id=PAD)
        (loss.nats / loss.n_targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def rival_step(setting: Setting, model: nn.Module) -> Step:
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    inputs, targets = setting.batch()

    def step() -> None:
        logits = model(*inputs)
        F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=PAD).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def all_times(steps: dict[str, Step], rounds: int) -> dict[str, list[float]]:
    """Seconds of each contestant's steps; they take turns, so that a disturbance of the machine
    meets all of them."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        step()
    for _ in range(rounds):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - start)
    return times


def best_times(steps: dict[str, Step], rounds: int) -> dict[str, float]:
    """Seconds of each contestant's fastest step."""
    return {name: min(times) for name, times in all_times(steps, rounds).items()}


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


def shares_of(step: Step) -> dict[str, float]:
    """The operators that take most of a step's time, and their share of it."""
    step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        for _ in range(3):
            step()
    operators = profiler.key_averages()
    total = sum(operator.self_cpu_time_total for operator in operators)
    largest = sorted(operators, key=lambda operator: -operator.self_cpu_time_total)[:12]
    return {operator.key: round(operator.self_cpu_time_total / total, 3) for operator in largest}


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
    from benchmarks import trainer  # which measures with this file's step

    with tempfile.TemporaryDirectory() as folder:
        corpus = trainer.make_corpus(Path(folder))
        loop = trainer.whole_loop(corpus, Path(folder) / "run", rounds + 1)
        print(json.dumps(loop, indent=2), flush=True)
        ranks = trainer.measure_ranks(corpus, rounds)
        print(json.dumps(ranks, indent=2))
    print("written:", write_result("step_trainer", {"loop": loop, "ranks": ranks}).name)


def write_before_and_after(earlier: Path, rounds: int) -> None:
    from benchmarks import trainer

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
