"""Text into batches at scale: the speed of prepare against the bare tokenizer, memory that does not
grow with the corpus, the speed of the loader against a training step, and the time to resume.

    python -m benchmarks.data --mb 1000

Needs CLEARHEAD_DATA, and three times the corpus on the disk.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.generated import write_corpus
from clearhead.config import BatchConfig, DataConfig, ModelConfig
from clearhead.data.corpus import Corpus, open_corpus
from clearhead.data.loader import Loader, Position
from clearhead.data.manifest import Manifest, SplitFacts, TokenizerFacts, remember
from clearhead.data.prepare import prepare
from clearhead.data.shards import Job, Progress
from clearhead.data.token_files import INDEX, FileFacts
from clearhead.environment import data_folder
from clearhead.files import sha256_of
from clearhead.models import build_model
from tools.result import write_result

SHARD_MB = 32
BATCHES = BatchConfig(length=512, batch_size=32)
TRILLION = 10**12
N_RESUMES = 20
N_ROUNDS, N_TIMED = 2, 20_000  # how often, and how many documents, prepare is timed against bare
PART = "part.jsonl"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=1000, help="size of the generated text")
    parser.add_argument("--folder", type=Path, default=Path("runs/benchmark-data"))
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    folder: Path = options.folder

    print("generating", flush=True)
    n_shards = -(-options.mb // SHARD_MB)
    write_corpus(
        data_folder(),
        folder / "text",
        n_shards=n_shards,
        shard_bytes=SHARD_MB * 1_000_000,
        seed=1,
    )
    print("preparing", flush=True)
    measured: dict[str, Any] = {
        "asked_mb": options.mb,
        "load_average_at_start": os.getloadavg(),
        "text_bytes": sum(path.stat().st_size for path in (folder / "text").glob("*.jsonl")),
        "prepare": measure_prepare(folder, options.processes),
    }
    print("reading", flush=True)
    corpus = open_corpus(folder / "prepared")
    measured["tokens"] = corpus.facts("train").tokens["text"]
    measured["loader"] = measure_loader(corpus)
    measured["training"] = measure_training()
    fastest = max(measured["training"].values())
    measured["loader"]["times_the_fastest_model"] = round(
        measured["loader"]["tokens_per_second"] / fastest, 1
    )
    measured["resume"] = measure_resume(folder / "prepared")
    print("simulating a trillion tokens", flush=True)
    measured["resume_at_a_trillion_tokens"] = measure_resume(sparse_corpus(folder, corpus))
    print(json.dumps(measured, indent=2))
    print(write_result("data", measured))


def measure_prepare(folder: Path, processes: int) -> dict[str, Any]:
    """Prepare of all the text for its memory; then, for its speed, prepare and the bare tokenizer
    on a part of it in turn, since the machine may be busier at times."""
    config = DataConfig(
        format="jsonl", columns=("text",), train=("text",), vocab_size=16_000, sample_mb=4
    )
    shutil.rmtree(folder / "prepared", ignore_errors=True)
    stages: dict[str, list[tuple[float, Progress]]] = {}

    def report(progress: Progress) -> None:
        stages.setdefault(progress.stage, []).append((time.perf_counter(), progress))

    job = Job(
        config=config, root=folder, folder=folder / "prepared", processes=processes, report=report
    )
    with memory_by_tenths(lambda: _share(stages)) as tenths:
        prepare(job)
    with (folder / "text/00000.jsonl").open("rb") as file:
        (folder / PART).write_bytes(b"".join(islice(file, N_TIMED)))
    rounds = [(encoding_speed(folder, processes), bare_speed(folder)) for _ in range(N_ROUNDS)]
    ours, bare = zip(*rounds)
    return {
        "processes": processes,
        "seconds": {stage: round(seen[-1][0] - seen[0][0], 1) for stage, seen in stages.items()},
        "rounds": [{"prepare": a._asdict(), "bare_encode_batch": b._asdict()} for a, b in rounds],
        "of_bare_encode_batch": round(
            statistics.median(a.per_second / b.per_second for a, b in rounds), 3
        ),
        "of_bare_encode_batch_by_processor_time": round(
            sum(a.per_processor_second for a in ours) / sum(b.per_processor_second for b in bare), 3
        ),
        **flatness(tenths),
    }


class Speed(NamedTuple):
    """Tokens by the clock, and by the processor time of all processes: what others run on the
    machine at the time disturbs the first more than the second."""

    per_second: int
    per_processor_second: int


@contextmanager
def stopwatch() -> Iterator[Callable[[int], Speed]]:
    began, used = time.perf_counter(), sum(os.times()[:4])

    def speed(tokens: int) -> Speed:
        elapsed, processor = time.perf_counter() - began, sum(os.times()[:4]) - used
        return Speed(round(tokens / elapsed), round(tokens / processor))

    yield speed


def encoding_speed(folder: Path, processes: int) -> Speed:
    """Prepare with the tokenizer that is there, from the disk to the disk."""
    config = DataConfig(
        format="jsonl",
        columns=("text",),
        train=(PART,),
        tokenizer="file",
        tokenizer_file="prepared/tokenizer.json",
    )
    job = Job(config=config, root=folder, folder=folder / "again", processes=processes)
    with stopwatch() as speed:
        manifest = prepare(job, overwrite=True)
        return speed(manifest.splits["train"].tokens["text"])


def _share(stages: dict[str, list[tuple[float, Progress]]]) -> float:
    """How much of the encoding is done."""
    if "train" not in stages:
        return -1.0
    progress = stages["train"][-1][1]
    return progress.done / progress.total


def bare_speed(folder: Path) -> Speed:
    """The library alone, on all cores, its text in memory already."""
    with (folder / PART).open(encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in file]
    tokenizer = open_corpus(folder / "prepared").tokenizers["text"].library
    tokens = 0
    with stopwatch() as speed:
        for start in range(0, len(texts), 1000):
            encoded = tokenizer.encode_batch(texts[start : start + 1000], add_special_tokens=False)
            tokens += sum(len(each.ids) for each in encoded)
        return speed(tokens)


@contextmanager
def memory_by_tenths(share: Callable[[], float]) -> Iterator[dict[int, list[int]]]:
    """Samples the memory of this process and its children, sorted by tenths of the work done.

    What is counted is anonymous memory. The pages of a mapped file are the kernel's cache: it drops
    them when it needs the room, and shows them as ours until then.
    """
    tenths: dict[int, list[int]] = {}
    finished = threading.Event()

    def watch() -> None:
        while not finished.wait(0.05):
            done = share()
            if 0 <= done <= 1:
                tenths.setdefault(min(9, int(done * 10)), []).append(anonymous_memory(os.getpid()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield tenths
    finally:
        finished.set()
        watcher.join()


def anonymous_memory(process: int) -> int:
    """Bytes, of a process and all that it started."""
    try:
        status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
        started = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii")
    except OSError:
        return 0  # it has just ended
    line = next((each for each in status.splitlines() if each.startswith("RssAnon")), "0 0 kB")
    own = int(line.split()[1]) * 1024
    return own + sum(anonymous_memory(int(child)) for child in started.split())


def flatness(tenths: dict[int, list[int]]) -> dict[str, Any]:
    peaks = {tenth: max(samples) for tenth, samples in sorted(tenths.items())}
    return {
        "peak_mb_by_tenths": {tenth + 1: round(peak / 1e6) for tenth, peak in peaks.items()},
        "last_tenth_to_first": round(peaks[max(peaks)] / peaks[min(peaks)], 3),
    }


def measure_loader(corpus: Corpus) -> dict[str, Any]:
    loader = Loader(corpus, BATCHES, epochs=1)
    n_batches = -(-loader.layout.n_samples // BATCHES.batch_size)
    tokens, began = 0, time.perf_counter()
    with memory_by_tenths(lambda: loader.position.step / n_batches) as tenths:
        for batch in loader:
            tokens += len(batch.samples) * BATCHES.length
    seconds = time.perf_counter() - began
    return {
        "tokens": tokens,
        "seconds": round(seconds, 1),
        "tokens_per_second": round(tokens / seconds),
        **flatness(tenths),
    }


def measure_training() -> dict[str, float]:
    """Tokens a second of the smallest models that one would train here."""
    sizes = {
        "4 layers of 128, 324 characters, 12 × 64": (4, 128, 324, 12, 64),
        "2 layers of 64, 324 characters, 32 × 64": (2, 64, 324, 32, 64),
    }
    return {name: round(_training_rate(*size)) for name, size in sizes.items()}


def _training_rate(n_layers: int, d_model: int, vocab_size: int, rows: int, length: int) -> float:
    config = ModelConfig(
        family="decoder",
        vocab_size=vocab_size,
        d_model=d_model,
        n_layers=n_layers,
        n_heads=4,
        d_ff=4 * d_model,
        max_length=length,
        p_dropout=0.0,
    )
    model = build_model(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(3, vocab_size, (rows, length + 1))
    best = 0.0
    for _ in range(30):
        began = time.perf_counter()
        logits = model(tokens[:, :-1])
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
        best = max(best, rows * length / (time.perf_counter() - began))
    return best


def measure_resume(folder: Path) -> dict[str, Any]:
    """From nothing open to the first batch at a random position."""
    chance = random.Random(1)
    seconds: list[float] = []
    for _ in range(N_RESUMES):
        began = time.perf_counter()
        loader = Loader(open_corpus(folder), BATCHES)
        n_windows = -(-loader.layout.n_samples // loader.layout.window)
        window = chance.randrange(n_windows)
        position = Position(step=window, epoch=0, window=window, batch=0)
        loader.load_state({**loader.state(), **position._asdict()})
        next(islice(loader, 1))
        seconds.append(time.perf_counter() - began)
    return {
        "tokens": sum(open_corpus(folder).facts("train").tokens.values()),
        "worst_seconds": round(max(seconds), 3),
        "median_seconds": round(sorted(seconds)[N_RESUMES // 2], 3),
    }


def sparse_corpus(folder: Path, like: Corpus, n_files: int = 100) -> Path:
    """10¹² zeros that take no room on the disk, in documents of a million tokens."""
    folder = folder / "sparse"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "train").mkdir(parents=True)
    n_tokens, n_documents = TRILLION // n_files, TRILLION // n_files // 10**6
    index = torch.arange(1, n_documents + 1, dtype=torch.int64) * 10**6
    files: list[FileFacts] = []
    for number in range(n_files):
        name = f"train/{number:05d}.text.ds"
        with (folder / name).open("wb") as file:
            file.truncate(n_tokens * 2)
        (folder / (name + INDEX)).write_bytes(index.numpy().astype("<u8").tobytes())
        files.append(FileFacts(name, 2, n_tokens, n_documents, "0" * 64, "0" * 64))
    shutil.copy(like.folder / "tokenizer.json", folder)
    tokenizer: TokenizerFacts = like.manifest.tokenizers["text"]
    split = SplitFacts(
        documents=n_documents * n_files,
        tokens={"text": TRILLION},
        longest={"text": 10**6},
        skipped={},
        files={"text": files},
    )
    manifest = Manifest(
        data={},
        task="language-model",
        versions={},
        inputs=[],
        tokenizers={"text": tokenizer},
        splits={"train": split},
    )
    manifest.write(folder)
    assert sha256_of(folder / "tokenizer.json") == tokenizer.sha256
    time.sleep(1)  # files that were written this very moment would not be taken as verified
    remember(folder, manifest)
    os.sync()  # else the first reader waits until all of it is on the disk
    return folder


if __name__ == "__main__":
    main()
