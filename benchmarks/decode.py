"""Decoding: our model against Hugging Face `generate` and CTranslate2 on the same weights and the
same sentences (Multi30k test), and against the matrix products alone; and the engine ctranslate2
through our whole path, text in and text out, against CTranslate2 on tokens. Interleaved, best of
several, as ratios. Every contestant decodes the same number of tokens.

    python -m benchmarks.decode
    python -m benchmarks.decode --threads 1 --name decode_one_thread

Each finished row is written to the result file, and the same command continues with the rows that
are missing. `--minutes 4` stops after the first row that ends later than that. With one thread,
processor time is what counts, so that a busy machine changes it little.
"""

import argparse
import gzip
import json
import tempfile
import time
from collections.abc import Callable, Iterator
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
from clearhead.config import (
    BeamConfig,
    Choice,
    DecodeConfig,
    GenerateConfig,
    ModelConfig,
    TranslateConfig,
)
from clearhead.decoding import beam_search, greedy
from clearhead.decoding.cached import CachedModel
from clearhead.decoding.codec import Codec
from clearhead.decoding.continuing import generate_texts
from clearhead.decoding.engine import CTranslate2Engine, EnginePrecision
from clearhead.decoding.text import translate_texts
from clearhead.environment import data_folder, keep_freed_memory
from clearhead.interop.model_folder import TokenIds, save_model
from clearhead.models import CausalLM, Seq2Seq, build_model
from clearhead.text.tokenizer import Tokenizer
from clearhead.text.train import train_bpe
from tools.result import FOLDER, circumstances, write_result

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
INPUTS = ("batch 1", "batch 32", "file")
BEAMS = (1, 5)
WHOLE = "engine ctranslate2, text to text"
WHOLE_INT8 = "engine ctranslate2 int8, text to text"

Clock = Callable[[], float]


def clock_of(threads: int) -> Clock:
    return time.process_time if threads == 1 else time.perf_counter


@dataclass(frozen=True)
class Setting:
    name: str
    config: ModelConfig
    n_file: int
    """Sentences of the file."""

    @property
    def is_pair(self) -> bool:
        return self.config.family == "encoder-decoder"


def settings(max_length: int = 256) -> list[Setting]:
    def config(d: int, heads: int, ff: int, layers: int, options: dict[str, Any]) -> ModelConfig:
        size = {"d_model": d, "n_heads": heads, "d_ff": ff, "n_layers": layers}
        return ModelConfig(**size, **options, max_length=max_length, p_dropout=0.0, init_std=0.05)

    return [
        Setting("encoder-decoder 6+6 × 512", config(512, 8, 2048, 6, PAIR), 128),
        Setting("encoder-decoder 4+4 × 128", config(128, 4, 256, 4, PAIR), 512),
        Setting("decoder 6 × 384", config(384, 6, 1536, 6, DECODER), 256),
    ]


def test_set() -> tuple[Tokenizer, list[str]]:
    """The German test set in its own order, and a tokenizer."""
    folder = data_folder() / "multi30k"

    def lines(name: str) -> list[str]:
        with gzip.open(folder / name, "rt", encoding="utf-8") as file:
            return [line.strip() for line in file]

    return train_bpe(lines("train.de.gz"), VOCAB), lines("test_2016_flickr.de.gz")


def ours(model: Seq2Seq | CausalLM, rows_together: int) -> Contestant:
    config = DecodeConfig(max_new=MAX_NEW, eos_id=None)

    def run(rows: Rows, beam: int) -> Rows:
        if beam == 1:
            outputs = greedy(model, rows, config, max_rows=rows_together)
            return [output.tokens for output in outputs]
        found = beam_search(
            model, rows, config, BeamConfig(width=beam), max_sentences=rows_together
        )
        return [texts[0].tokens for texts in found]

    return run


def whole_path(
    folder: Path, out: Path, tokenizer: Tokenizer, texts: list[str], precision: EnginePrecision
) -> Contestant:
    """Text in, text out; the rows of tokens that the others are given are not used."""
    engine = CTranslate2Engine(folder, precision=precision, folder=out)
    codec = Codec(source=tokenizer, target=tokenizer, ids=TokenIds())

    def run(rows: Rows, beam: int) -> Rows:
        given = texts[: len(rows)]
        if engine.config.family == "encoder-decoder":
            how = TranslateConfig(beam=BeamConfig(width=beam), max_new=MAX_NEW)
            decoded = translate_texts(engine, codec, given, how)
        else:
            how = GenerateConfig(choice=Choice(temperature=0), max_new=MAX_NEW)
            decoded = generate_texts(engine, codec, given, how)
        return [each.outputs[0].tokens for each in decoded]

    run([[], []], 1)  # the weights are read when they are first needed
    return run


def measure(
    contestants: dict[str, Contestant], rows: Rows, beam: int, rounds: int, clock: Clock
) -> tuple[dict[str, float], dict[str, float]]:
    """Tokens each second of each contestant's fastest run, and the share of its texts that are
    ours. They take turns, so that a disturbance of the machine meets all of them."""
    best = dict.fromkeys(contestants, float("inf"))
    texts: dict[str, Rows] = {}
    for _ in range(rounds):
        for name, run in contestants.items():
            start = clock()
            texts[name] = run(rows, beam)
            best[name] = min(best[name], clock() - start)
    mine = texts["clearhead"]
    same = {
        name: sum(a == b for a, b in zip(mine, other)) / len(mine) for name, other in texts.items()
    }
    n_tokens = {name: sum(map(len, decoded)) for name, decoded in texts.items()}
    return {name: n_tokens[name] / t for name, t in best.items()}, same


def measure_setting(
    setting: Setting,
    tokenizer: Tokenizer,
    texts: list[str],
    missing: list[tuple[str, int]],
    arguments: argparse.Namespace,
) -> Iterator[dict[str, Any]]:
    model = build_model(setting.config).eval()
    assert isinstance(model, Seq2Seq | CausalLM)
    clock = clock_of(arguments.threads)
    texts = sorted(texts[: setting.n_file], key=lambda text: len(tokenizer.encode(text)))
    end = [tokenizer.eos_id] if setting.is_pair else []
    everything = [[*tokenizer.encode(text), *end] for text in texts]
    middle = len(everything) // 2
    kinds: dict[str, tuple[Rows, int]] = {
        "batch 1": (everything[middle : middle + 1], arguments.rounds + 2),
        "batch 32": (everything[middle : middle + 32], arguments.rounds),
        "file": (everything, max(1, arguments.rounds - 1)),
    }
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "tokenizer").mkdir()
        (folder / "tokenizer" / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
        save_model(model, folder / "bare")  # where tokens are called by their numbers
        save_model(model, folder / "ours", tokenizer=folder / "tokenizer")
        theirs = ctranslate2_pair if setting.is_pair else ctranslate2_decoder
        ct2 = partial(theirs, folder / "bare")
        in_all = {
            "clearhead": ours(model, arguments.rows),
            "Hugging Face": hugging_face(folder / "bare", folder / "hf", MAX_NEW, 32),
            "CTranslate2": ct2(folder / "ct2", MAX_NEW, arguments.threads),
        }
        whole: dict[str, Contestant] = {}
        if any(kind == "file" for kind, _ in missing):
            whole["CTranslate2 int8"] = ct2(folder / "ct2-8", MAX_NEW, arguments.threads, "int8")
            precisions: dict[str, EnginePrecision] = {WHOLE: "float32", WHOLE_INT8: "int8"}
            for name, precision in precisions.items():
                out = folder / "engine"
                whole[name] = whole_path(folder / "ours", out, tokenizer, texts, precision)
        for kind, beam in missing:
            rows, rounds = kinds[kind]
            contestants = dict(in_all)
            if kind == "file" and (setting.is_pair or beam == 1):
                contestants |= whole
            speeds, same = measure(contestants, rows, beam, rounds, clock)
            row: dict[str, Any] = {
                "setting": setting.name,
                "input": kind,
                "search": search_of(beam),
                "tokens_per_second": {name: round(s, 1) for name, s in speeds.items()},
                "our_speed_relative_to": {
                    name: round(speeds["clearhead"] / speeds[name], 2)
                    for name in ("Hugging Face", "CTranslate2")
                },
                "same_texts": {name: round(s, 3) for name, s in same.items()},
            }
            if WHOLE in speeds:
                row["whole_path_relative_to_tokens"] = {
                    "float32": round(speeds[WHOLE] / speeds["CTranslate2"], 2),
                    "int8": round(speeds[WHOLE_INT8] / speeds["CTranslate2 int8"], 2),
                }
                row["whole_path_relative_to_ours"] = {
                    "float32": round(speeds[WHOLE] / speeds["clearhead"], 2),
                    "int8": round(speeds[WHOLE_INT8] / speeds["clearhead"], 2),
                }
            if kind != "file":
                bound = matmul_seconds(setting.config, rows, beam, MAX_NEW, clock)
                row["matmul_bound_tokens_per_second"] = round(len(rows) * MAX_NEW / bound, 1)
                share = speeds["clearhead"] * bound / (len(rows) * MAX_NEW)
                row["share_of_matmul_bound"] = round(share, 3)
                if kind == "batch 32":
                    row["profile"] = profile(partial(in_all["clearhead"], rows, beam))
            yield row


def search_of(beam: int) -> str:
    return "greedy" if beam == 1 else f"beam {beam}"


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
    speed = row["tokens_per_second"]["clearhead"]
    bound = row.get("share_of_matmul_bound")
    last = f"{bound:>8.2f}" if bound is not None else f"{'':>8}"
    for name in ("whole_path_relative_to_tokens", "whole_path_relative_to_ours"):
        last += "".join(f"{ratio:>8.2f}" for ratio in row.get(name, {}).values())
    print(f"{row['setting']:<28}{row['input']:<10}{row['search']:<8}{speed:>9,.0f}{ratios}{last}",
          flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6, help="the best of so many runs counts")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", type=int, default=32, help="sentences that we run together")
    parser.add_argument("--only", type=int, help="the number of one setting")
    parser.add_argument("--tokens", type=int, default=2048, help="of the text that grows")
    parser.add_argument("--name", default="decode", help="of the result file")
    parser.add_argument("--minutes", type=float, default=1e9, help="start no row after these")
    parser.add_argument("--again", action="store_true", help="forget the rows that are there")
    arguments = parser.parse_args()
    deadline = time.monotonic() + 60 * arguments.minutes
    torch.set_num_threads(arguments.threads)
    kept = keep_freed_memory()
    path = FOLDER / f"{arguments.name}.json"
    before = json.loads(path.read_text("utf-8")) if path.exists() and not arguments.again else {}
    rows: list[dict[str, Any]] = before.get("decoding", [])
    growing: dict[str, Any] | None = before.get("growing_text")
    done = {(row["setting"], row["input"], row["search"]) for row in rows}
    order = {setting.name: number for number, setting in enumerate(settings())}

    def write() -> None:
        rows.sort(key=lambda row: (order[row["setting"]], INPUTS.index(row["input"])))
        measured = {
            "rounds": arguments.rounds,
            "clock": "processor time" if arguments.threads == 1 else "wall clock",
            "freed_memory_kept": kept,
            "tokens_of_each_text": MAX_NEW,
            "decoding": rows,
            "growing_text": growing,
        }
        write_result(arguments.name, measured)

    tokenizer, texts = test_set()
    print(f"{'':<46}{'tokens/s':>9}{'HF':>8}{'CT2':>8}{'bound':>8}{'whole path / CT2, / ours':>26}")
    chosen = settings() if arguments.only is None else [settings()[arguments.only]]
    for setting in chosen:
        missing = [
            (kind, beam)
            for kind in INPUTS
            for beam in BEAMS
            if (setting.name, kind, search_of(beam)) not in done
        ]
        if not missing or time.monotonic() > deadline:
            continue
        for row in measure_setting(setting, tokenizer, texts, missing, arguments):
            rows.append(row | {"commit": circumstances()["commit"]})
            write()
            show(row)
            if time.monotonic() > deadline:
                break
    if growing is None and time.monotonic() <= deadline:
        growing = flatness(arguments.tokens, clock_of(arguments.threads))
        write()
        print("milliseconds of a token, by 256:", *growing["median_milliseconds_of_a_token_by_256"])
    print("Ratios are our speed over theirs: above 1, ours is the faster.")


if __name__ == "__main__":
    main()
