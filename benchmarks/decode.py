"""Writing: ours against Hugging Face `generate` and CTranslate2 float32 on the same weights and the
same sentences (Multi30k test), and against the matrix products alone. Interleaved, best of several,
as ratios. Every contestant writes the same number of tokens.

    python -m benchmarks.decode
    python -m benchmarks.decode --threads 1 --name decode_one_thread

With one thread, processor time is what counts, so that a busy machine does not change it.
"""

import argparse
import gzip
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.decode_rivals import (
    Contestant,
    Rows,
    ctranslate2_decoder,
    ctranslate2_pair,
    hugging_face,
    matmul_seconds,
)
from benchmarks.result import write_result
from clearhead.config import BeamConfig, DecodeConfig, ModelConfig
from clearhead.decoding import beam_search, greedy
from clearhead.decoding.cached import CachedModel
from clearhead.environment import data_folder, keep_freed_memory
from clearhead.interop.model_folder import save_model
from clearhead.models import CausalLM, Seq2Seq, build_model
from clearhead.text.train import train_bpe

MAX_NEW = 16  # a sentence of the test set has 14 tokens and an end, on average
VOCAB = 8000
PAIR = {"family": "encoder-decoder", "norm_placement": "post", "vocab_size": VOCAB}
DECODER = {
    "family": "decoder",
    "positions": "learned",
    "embedding_scale": False,
    "feed_forward": "gelu-tanh",
    "vocab_size": VOCAB,
}


Clock = Callable[[], float]


def clock_of(threads: int) -> Clock:
    return time.process_time if threads == 1 else time.perf_counter


@dataclass(frozen=True)
class Setting:
    name: str
    config: ModelConfig
    n_file: int
    """Sentences of the file."""


def settings(max_length: int = 256) -> list[Setting]:
    def config(d: int, heads: int, ff: int, layers: int, options: dict[str, Any]) -> ModelConfig:
        size = {"d_model": d, "n_heads": heads, "d_ff": ff, "n_layers": layers}
        return ModelConfig(**size, **options, max_length=max_length, p_dropout=0.0, init_std=0.05)

    return [
        Setting("encoder-decoder 6+6 × 512", config(512, 8, 2048, 6, PAIR), 128),
        Setting("encoder-decoder 4+4 × 128", config(128, 4, 256, 4, PAIR), 512),
        Setting("decoder 6 × 384", config(384, 6, 1536, 6, DECODER), 256),
    ]


def sentences() -> Rows:
    """The German test set in tokens, each ended, in its own order."""
    folder = data_folder() / "multi30k"

    def lines(name: str) -> list[str]:
        with gzip.open(folder / name, "rt", encoding="utf-8") as file:
            return [line.strip() for line in file]

    train = lines("train.de.gz")
    tokenizer = train_bpe(train, VOCAB)
    return [[*tokenizer.encode(line), tokenizer.eos_id] for line in lines("test_2016_flickr.de.gz")]


def ours(model: Seq2Seq | CausalLM, rows_together: int) -> Contestant:
    config = DecodeConfig(max_new=MAX_NEW, eos_id=None)

    def write(rows: Rows, beam: int) -> Rows:
        if beam == 1:
            outputs = greedy(model, rows, config, max_rows=rows_together)
            return [output.tokens for output in outputs]
        found = beam_search(
            model, rows, config, BeamConfig(width=beam), max_sentences=rows_together
        )
        return [texts[0].tokens for texts in found]

    return write


def measure(
    contestants: dict[str, Contestant], rows: Rows, beam: int, rounds: int, clock: Clock
) -> tuple[dict[str, float], dict[str, float]]:
    """Tokens each second of each contestant's fastest run, and the share of its texts that are
    ours. They take turns, so that a disturbance of the machine meets all of them."""
    best = dict.fromkeys(contestants, float("inf"))
    texts: dict[str, Rows] = {}
    for _ in range(rounds):
        for name, write in contestants.items():
            start = clock()
            texts[name] = write(rows, beam)
            best[name] = min(best[name], clock() - start)
    mine = texts["clearhead"]
    same = {
        name: sum(a == b for a, b in zip(mine, other)) / len(mine) for name, other in texts.items()
    }
    return {name: len(rows) * MAX_NEW / t for name, t in best.items()}, same


def measure_setting(setting: Setting, test: Rows, arguments: argparse.Namespace) -> list[dict]:
    model = build_model(setting.config).eval()
    assert isinstance(model, Seq2Seq | CausalLM)
    clock = clock_of(arguments.threads)
    results: list[dict[str, Any]] = []
    by_length = sorted(test[: setting.n_file], key=len)
    kinds: list[tuple[str, Rows, int]] = [
        ("batch 1", test[:1], arguments.rounds + 2),
        ("batch 32", test[:32], arguments.rounds),
        ("file", by_length, max(1, arguments.rounds - 1)),
    ]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        save_model(model, folder / "ours")
        contestants = {
            "clearhead": ours(model, arguments.rows),
            "Hugging Face": hugging_face(folder / "ours", folder / "hf", MAX_NEW, 32),
        }
        theirs = ctranslate2_pair if isinstance(model, Seq2Seq) else ctranslate2_decoder
        contestants["CTranslate2"] = theirs(
            folder / "ours", folder / "ct2", MAX_NEW, arguments.threads
        )
        for kind, rows, rounds in kinds:
            for beam in (1, 5):
                speeds, same = measure(contestants, rows, beam, rounds, clock)
                row: dict[str, Any] = {
                    "setting": setting.name,
                    "input": kind,
                    "search": "greedy" if beam == 1 else f"beam {beam}",
                    "tokens_per_second": {name: round(s, 1) for name, s in speeds.items()},
                    "our_speed_relative_to": {
                        name: round(speeds["clearhead"] / s, 2)
                        for name, s in speeds.items()
                        if name != "clearhead"
                    },
                    "same_texts": {name: round(s, 3) for name, s in same.items()},
                }
                if kind != "file":
                    bound = matmul_seconds(setting.config, rows, beam, MAX_NEW, clock)
                    row["matmul_bound_tokens_per_second"] = round(len(rows) * MAX_NEW / bound, 1)
                    share = speeds["clearhead"] * bound / (len(rows) * MAX_NEW)
                    row["share_of_matmul_bound"] = round(share, 3)
                results.append(row)
                show(row)
        shares = profile(partial(contestants["clearhead"], test[:32], 1))
        results.append({"setting": setting.name, "profile": "batch 32, greedy", "shares": shares})
        shares = profile(partial(contestants["clearhead"], test[:32], 5))
        results.append({"setting": setting.name, "profile": "batch 32, beam 5", "shares": shares})
    return results


def profile(run: Callable[[], object]) -> dict[str, float]:
    """The operators that take most of the time, and their share of it."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        run()
    operators = profiler.key_averages()
    total = sum(operator.self_cpu_time_total for operator in operators)
    largest = sorted(operators, key=lambda operator: -operator.self_cpu_time_total)[:10]
    return {operator.key: round(operator.self_cpu_time_total / total, 3) for operator in largest}


def flatness(n_tokens: int, clock: Clock, block: int = 256) -> dict[str, Any]:
    """Milliseconds of a token, by blocks, while one text of a 6 × 384 decoder grows."""
    setting = settings(max_length=n_tokens + 2)[2]
    model = build_model(setting.config).eval()
    assert isinstance(model, CausalLM)
    cached = CachedModel(model)
    cached.join([[5]], None)
    milliseconds: list[float] = []
    for _ in range(n_tokens // block):
        times: list[float] = []
        for _ in range(block):
            start = clock()
            cached.step([7])
            times.append(clock() - start)
        milliseconds.append(round(1000 * sorted(times)[block // 2], 3))
    slope = (milliseconds[-1] - milliseconds[0]) / (n_tokens - block)
    return {
        "setting": setting.name,
        "median_milliseconds_of_a_token_by_256": milliseconds,
        "microseconds_more_for_each_token_before": round(1000 * slope, 4),
    }


def show(row: dict[str, Any]) -> None:
    ratios = "".join(f"{ratio:>8.2f}" for ratio in row["our_speed_relative_to"].values())
    bound = row.get("share_of_matmul_bound")
    speed = row["tokens_per_second"]["clearhead"]
    last = f"{bound:>8.2f}" if bound is not None else ""
    print(f"{row['setting']:<28}{row['input']:<10}{row['search']:<8}{speed:>9,.0f}{ratios}{last}",
          flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="the best of so many runs counts")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", type=int, default=128, help="sentences that we write together")
    parser.add_argument("--only", type=int, help="the number of one setting, to try it")
    parser.add_argument("--tokens", type=int, default=2048, help="of the text that grows")
    parser.add_argument("--name", default="decode", help="of the result file")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    kept = keep_freed_memory()
    test = sentences()
    chosen = settings() if arguments.only is None else [settings()[arguments.only]]
    print(f"{'':<46}{'tokens/s':>9}{'HF':>8}{'CT2':>8}{'bound':>8}")
    rows = [row for setting in chosen for row in measure_setting(setting, test, arguments)]
    flat = flatness(arguments.tokens, clock_of(arguments.threads))
    print("milliseconds of a token, by 256:", *flat["median_milliseconds_of_a_token_by_256"])
    print("Ratios are our speed over theirs: above 1, ours is the faster.")
    measured = {
        "rounds": arguments.rounds,
        "clock": "processor time" if arguments.threads == 1 else "wall clock",
        "freed_memory_kept": kept,
        "tokens_of_each_text": MAX_NEW,
        "decoding": [row for row in rows if "profile" not in row],
        "profiles": [row for row in rows if "profile" in row],
        "growing_text": flat,
    }
    print("written:", write_result(arguments.name, measured).name)


if __name__ == "__main__":
    main()
