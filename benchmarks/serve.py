"""The server under load and under attack, as a process of its own on this machine.

    python -m benchmarks.serve load NAME=MODEL [--clients 1 8 32 128] [--seconds 15]
    python -m benchmarks.serve soak NAME=MODEL [--requests 100000]
    python -m benchmarks.serve faults NAME=MODEL
    python -m benchmarks.serve fair NAME=MODEL [--rounds 4] [--seconds 15]
    python -m benchmarks.serve crowd NAME=MODEL [--rounds 4] [--seconds 15]
    python -m benchmarks.serve compare NAME=MODEL --checkout FOLDER [--rounds 8] [--seconds 15]

MODEL is what `clearhead serve` takes, or `random`: 6+6 layers of width 512 with random weights,
which translate every sentence into 24 tokens. `load`: sentences per processor second of the server,
beside CTranslate2's own on the same tokens without a server; latencies. `soak`: memory and open
files over many requests. `faults`: a worker killed, SIGTERM under load, a full queue, clients that
are slow, silent, or send too much. What is measured is written at once to
benchmarks/results/serve-PART-NAME.json; the same command measures only what is not there yet.

The others measure in turns (`serve_turns.py`), and always anew. `fair`: single sentences alone, and
beside a request of 20,000 characters. `crowd`: 32 clients alone, and beside 1,000 that do nothing.
`compare`: the throughput of this code and of another checkout.
"""

import argparse
import asyncio
import gzip
import json
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ctranslate2
import psutil
import torch

from benchmarks import serve_turns
from clearhead.api.loading import find_model
from clearhead.config import ModelConfig
from clearhead.decoding.engine import TOKENS_TOGETHER, CTranslate2Engine
from clearhead.decoding.opening import checked_folder, open_codec
from clearhead.decoding.sentences import split_text
from clearhead.decoding.text import reader_of
from clearhead.environment import data_folder
from clearhead.interop.model_folder import save_model
from clearhead.models import build_model
from clearhead.text.train import train_bpe
from tests.serving.clients import latencies, load, percentiles
from tests.serving.faults import FAULTS
from tests.serving.process import RunningServer
from tools.result import FOLDER, write_result

BEAM, MAX_NEW = 4, 256
RANDOM_NEW = 24
N_TEXTS = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=list(PARTS))
    parser.add_argument("model", help="NAME=MODEL; NAME is the pair of languages")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32, 128])
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=4, help="of measurements in turns")
    parser.add_argument("--checkout", type=Path, help="another one of the repository")
    parser.add_argument("--precision", choices=["float32", "int8"], default="float32")
    arguments = parser.parse_args()
    if arguments.part == "compare" and arguments.checkout is None:
        parser.error("name the other --checkout")
    torch.set_num_threads(1)
    with TemporaryDirectory(prefix="clearhead-bench-") as name:
        served = Served(arguments.model, arguments.precision, Path(name))
        PARTS[arguments.part](served, arguments)


class Served:
    """A model, texts for it, and how the server is started with it."""

    def __init__(self, named: str, precision: str, folder: Path) -> None:
        self.name, _, model = named.partition("=")
        self.source, self.target = self.name.split("-")
        self.cache, self.precision = folder / "cache", precision
        self.max_new = MAX_NEW
        lines = english_lines()
        if model == "random":
            self.max_new, model = RANDOM_NEW, str(random_model(lines, folder / "random"))
        self.model = model
        self.folder = checked_folder(find_model(model).folder)
        self.codec = open_codec(self.folder)
        longest = CTranslate2Engine(
            self.folder, folder=self.cache / "ctranslate2"
        ).config.max_length
        fits = reader_of(self.codec, longest)
        if model == "copy-task":  # it knows strings of letters only
            lines = ["".join(filter(str.isalnum, line.lower()))[:14] for line in lines]
        self.texts = [
            line
            for line in dict.fromkeys(lines)
            if split_text(line, self.source, fits).sentences == [line]
        ][:N_TEXTS]

    @contextmanager
    def running(self, *options: object, checkout: Path | None = None) -> Iterator[RunningServer]:
        """`checkout`: whose code it runs, instead of this one's."""
        arguments = (
            f"{self.name}={self.model}", "--max-new", self.max_new, "--beam", BEAM,
            "--precision", self.precision, *options,
        )  # fmt: skip
        with RunningServer(*arguments, cache=self.cache, checkout=checkout) as server:
            server.wait_for("ready")
            yield server

    def body(self, texts: str | list[str]) -> bytes:
        return json.dumps({"q": texts, "source": self.source, "target": self.target}).encode()

    def bodies(self) -> list[bytes]:
        return [self.body(text) for text in self.texts]

    def result(self, part: str) -> tuple[str, dict[str, Any]]:
        """The name of the result file, and what it holds already."""
        model = Path(self.model).name if self.max_new == MAX_NEW else "random-512"
        name = f"serve-{part}-{model}" + ("" if self.precision == "float32" else "-int8")
        path = FOLDER / f"{name}.json"
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        kept = ("offline", "clients", "soak", "faults")
        return name, {key: known[key] for key in kept if key in known}


def english_lines() -> list[str]:
    with gzip.open(data_folder() / "tatoeba_cmn_eng" / "test.tsv.gz", "rt", encoding="utf-8") as f:
        return [line.split("\t")[0] for line in f]


def random_model(lines: list[str], folder: Path) -> Path:
    """The size of the paper's base model; its outputs end at the limit only."""
    tokenizer = train_bpe(lines, 8000)
    folder.mkdir()
    (folder / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    config = ModelConfig(
        family="encoder-decoder", vocab_size=8000, d_model=512, n_heads=8, d_ff=2048, n_layers=6,
        max_length=256,
    )  # fmt: skip
    torch.manual_seed(0)
    save_model(build_model(config), folder / "model", tokenizer=folder)
    return folder / "model"


def offline(served: Served, batch: int, seconds: float) -> float:
    """Sentences per processor second of CTranslate2 alone: tokens in, tokens out. `batch`:
    sentences side by side; 0: as many as fit into the tokens of a batch of the engine."""
    engine = CTranslate2Engine(served.folder, folder=served.cache / "ctranslate2")
    translator = ctranslate2.Translator(
        str(engine.folder), compute_type=served.precision, inter_threads=1, intra_threads=1
    )
    tokens = [
        [engine.names.source[i] for i in ids[:-1]]
        for ids in served.codec.encode_sources(served.texts)
    ]

    def run(rows: list[list[str]]) -> None:
        translator.translate_batch(
            rows, beam_size=BEAM, max_decoding_length=served.max_new, max_input_length=0,
            min_decoding_length=0, max_batch_size=batch or TOKENS_TOGETHER,
            batch_type="examples" if batch else "tokens",
        )  # fmt: skip

    run(tokens[:32])
    n_together = 32 if batch == 1 else 256
    n_done, started = 0, time.process_time()
    for start in count(step=n_together):
        if n_done and time.process_time() - started > seconds:
            break
        run([tokens[i % len(tokens)] for i in range(start, start + n_together)])
        n_done += n_together
    return n_done / (time.process_time() - started)


def processor_seconds(server: RunningServer) -> float:
    own = psutil.Process(server.process.pid)
    times = [process.cpu_times() for process in (own, *own.children(recursive=True))]
    return sum(each.user + each.system for each in times)


def measure_load(served: Served, arguments: argparse.Namespace) -> None:
    name, measured = served.result("load")
    seconds = arguments.seconds
    measured |= {"max_new": served.max_new, "beam": BEAM, "precision": served.precision}
    offline_rates = measured.setdefault("offline", {})
    for batch in (0, *arguments.clients):
        if str(batch) not in offline_rates:
            offline_rates[str(batch)] = round(offline(served, batch, seconds / 2), 1)
            report(name, measured, offline_rates)
    rows = measured.setdefault("clients", [])
    with served.running() as server:
        asyncio.run(load(server.port, served.bodies(), 8, 2))  # warm
        for n in arguments.clients:
            if any(row["clients"] == n for row in rows):
                continue
            before, started = processor_seconds(server), time.perf_counter()
            found = asyncio.run(load(server.port, served.bodies(), n, seconds))
            elapsed = time.perf_counter() - started
            rate = len(found) / (processor_seconds(server) - before)
            rows.append(
                {
                    "clients": n,
                    "sentences_per_second": round(len(found) / elapsed, 1),
                    "sentences_per_processor_second": round(rate, 1),
                    "of_offline": round(rate / offline_rates["0"], 3),
                    "of_offline_with_batches_of_clients": round(rate / offline_rates[str(n)], 3),
                    **percentiles(latencies(found)),
                    "resident_mb": round(
                        psutil.Process(server.process.pid).memory_info().rss / 1e6
                    ),
                }
            )
            report(name, measured, rows[-1])


def measure_soak(served: Served, arguments: argparse.Namespace) -> None:
    """Requests of every kind, on connections that are kept and on new ones."""
    name, measured = served.result("soak")
    if "soak" in measured:
        return
    bad = [b"{", served.body("x" * 30_000), b'{"q": "a"}', b"[]"]
    html = served.body("<p>one <b>two</b></p>")[:-1] + b', "format": "html"}'
    kinds = [*served.bodies(), *bad, html, served.body(served.texts[:5])]
    rows: list[dict[str, Any]] = []
    with served.running() as server:
        n_done = 0
        per_row = arguments.requests // 20
        while n_done < arguments.requests:
            started = time.perf_counter()
            found = asyncio.run(
                load(server.port, kinds, 8, 10**6, n_requests=per_row, reconnect=50)
            )
            n_done += len(found)
            process = psutil.Process(server.process.pid)
            rows.append(
                {
                    "requests": n_done,
                    "resident_mb": round(process.memory_info().rss / 1e6, 1),
                    "open_files": process.num_fds(),
                    "threads": process.num_threads(),
                    "failed": sum(status == 0 or status >= 500 for status, _ in found),
                    "seconds": round(time.perf_counter() - started, 1),
                }
            )
            print(rows[-1], flush=True)
    settled = [row["resident_mb"] for row in rows[2:]]  # after the first tenth
    growth = settled[-1] / settled[0] - 1
    measured["soak"] = {"growth": round(growth, 4), "rows": rows}
    report(name, measured, {"growth": growth})


def measure_faults(served: Served, arguments: argparse.Namespace) -> None:
    del arguments
    name, measured = served.result("faults")
    found = measured.setdefault("faults", {})
    for fault, try_it in FAULTS.items():
        if fault not in found:
            found[fault] = try_it(served)
            report(name, measured, {fault: found[fault]})


def report(name: str, measured: dict[str, Any], what: Any) -> None:
    print(json.dumps(what), flush=True)
    write_result(name, measured)


PARTS: dict[str, Callable[[Served, argparse.Namespace], None]] = {
    "load": measure_load,
    "soak": measure_soak,
    "faults": measure_faults,
    **serve_turns.PARTS,
}

if __name__ == "__main__":
    # Each connection is a file, on both sides.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    main()
