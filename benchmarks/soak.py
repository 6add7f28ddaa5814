"""Hours of work with faults on the way, and memory that may not grow. A soak that is stopped
continues with the same command.

    python -m benchmarks.soak prepare --mb 3000     # generated text through `clearhead prepare`
    python -m benchmarks.soak datatrove --mb 1000   # through datatrove: duplicates, filters, tokens
    python -m benchmarks.soak training --minutes 40 # two ranks, once undisturbed, once with faults

`prepare` and `datatrove` are killed (kill -9) and started again. `training` is killed, loses one of
its two processes, and finds its disk full; this needs to be root, to mount a small file system.
Needs CLEARHEAD_DATA.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.data import SHARD_MB, anonymous_memory, flatness
from benchmarks.faults import (
    CLEARHEAD,
    ENVIRONMENT,
    Bench,
    check_same,
    children,
    lines,
    wait_for_lines,
    weights,
)
from benchmarks.generated import write_corpus
from clearhead.data.corpus import Corpus, open_corpus
from clearhead.environment import data_folder
from clearhead.files import write_whole
from tools.result import write_result

SAMPLED_EVERY = 0.5  # seconds
GUESSED_SPEED = 1.0  # MB of text a second, from which the moments of the kills are drawn
N_COMPARED = 10_000  # documents that are decoded and held against the text
RECIPE = """
[data]
format = "jsonl"
columns = ["text"]
train = ["text"]
vocab_size = 16000
sample_mb = 4
shard_mb = 32
"""


class Diary:
    """What has happened so far, kept on the disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        known: dict[str, Any] = {}
        if path.is_file():
            known = json.loads(path.read_text(encoding="utf-8"))
        self.attempts: list[dict[str, Any]] = known.get("attempts", [])
        self.samples: list[tuple[float, int]] = [tuple(each) for each in known.get("samples", [])]
        """Progress (any number that grows) and bytes of memory."""

    def save(self) -> None:
        write_whole(self.path, json.dumps(vars(self) | {"path": str(self.path)}))

    @property
    def kills(self) -> int:
        return sum(attempt["killed"] for attempt in self.attempts)

    @property
    def seconds(self) -> float:
        return sum(attempt["seconds"] for attempt in self.attempts)

    def memory(self) -> dict[str, Any]:
        """Peaks by tenths of the progress, from its beginning on."""
        last = max(progress for progress, _ in self.samples)
        tenths: dict[int, list[int]] = {}
        for progress, memory in self.samples:
            if progress > 0:
                tenths.setdefault(min(9, int(10 * progress / last)), []).append(memory)
        return flatness(tenths)


LAUNCHED: list[subprocess.Popen[bytes]] = []


def launch(command: list[str], log: Path, **environment: str) -> subprocess.Popen[bytes]:
    with log.open("ab") as out:
        process = subprocess.Popen(
            command,
            env={**ENVIRONMENT, **environment},
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    LAUNCHED.append(process)
    return process


def kill(process: subprocess.Popen[bytes]) -> None:
    """With all that it has started: torchrun's workers are not of its group."""
    started = children(process.pid)
    os.killpg(process.pid, signal.SIGKILL)
    for worker in started:
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)


def end_all() -> None:
    """A soak that is stopped leaves nothing behind that would get into the way of the next."""
    for process in LAUNCHED:
        if process.poll() is None:
            kill(process)


def run_and_kill(
    command: list[str],
    diary: Diary,
    *,
    kills: int,
    seconds: float,
    progress: Callable[[], float],
    **environment: str,
) -> None:
    """Runs the command to its end, killed on the way as often as `kills`, at random moments of
    the `seconds` that it may take."""
    chance = random.Random(len(diary.attempts))
    log = diary.path.with_suffix(".log")
    while True:
        left = kills - diary.kills
        after = chance.uniform(0.2, 1.8) * seconds / (kills + 1) if left > 0 else float("inf")
        began = time.monotonic()
        process = launch(command, log, **environment)
        while process.poll() is None and time.monotonic() - began < after:
            diary.samples.append((progress(), anonymous_memory(process.pid)))
            time.sleep(SAMPLED_EVERY)
        killed = process.poll() is None
        if killed:
            kill(process)
        code = process.wait()
        took = round(time.monotonic() - began, 1)
        diary.attempts.append({"seconds": took, "killed": killed})
        diary.save()
        print(diary.attempts[-1], flush=True)
        if code == 0:
            return
        if not killed:
            raise RuntimeError(f"{' '.join(command)} ended with {code}; see {log}")


def size_of(folder: Path) -> int:
    """Bytes of all files, some of which may be going away."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size
        except OSError:
            continue
    return total


def generate(folder: Path, mb: int) -> int:
    """Bytes of the text, which is written unless it is there."""
    shard_mb = min(SHARD_MB, max(1, mb // 8))
    write_corpus(
        data_folder(),
        folder / "text",
        n_shards=-(-mb // shard_mb),
        shard_bytes=shard_mb * 1_000_000,
        seed=1,
    )
    return size_of(folder / "text")


def texts_of(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("*.jsonl")):
        with path.open(encoding="utf-8") as file:
            for line in file:
                yield json.loads(line)["text"]


def compare(corpus: Corpus, texts: Iterator[str]) -> dict[str, int]:
    """Decodes documents chosen at random and those at both ends of every file, and holds them
    against the text. One document more or less, anywhere, would shift all that follow."""
    store, tokenizer = corpus.store("train", "text"), corpus.tokenizers["text"]
    chosen = set(np.random.default_rng(1).integers(store.n_documents, size=N_COMPARED).tolist())
    first = 0
    for file in corpus.facts("train").files["text"]:
        chosen |= {first, first + file.documents - 1}
        first += file.documents
    n = 0
    for n, text in enumerate(texts, 1):
        if n - 1 in chosen:
            found = tokenizer.decode(store.document(n - 1)[:-1])
            assert found == text, f"document {n - 1}: {found[:60]!r}, not {text[:60]!r}"
    assert n == store.n_documents, f"{store.n_documents} documents of {n} texts"
    return {"documents": n, "documents_compared": len(chosen)}


def soak_prepare(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    text_bytes = generate(folder, options.mb)
    (folder / "recipe.toml").write_text(RECIPE, encoding="utf-8")
    diary, out = Diary(folder / "prepare.json"), folder / "prepared"
    command = [*CLEARHEAD, "prepare", str(folder / "recipe.toml"), "--processes", "2"]
    run_and_kill(
        [*command, "--out", str(out)],
        diary,
        kills=options.faults,
        seconds=text_bytes / 1e6 / GUESSED_SPEED,
        progress=lambda: size_of(out / "train"),
        CLEARHEAD_DATA=str(folder),
    )
    corpus = open_corpus(out)
    return {
        "text_bytes": text_bytes,
        "tokens": corpus.facts("train").tokens["text"],
        "kills": diary.kills,
        "seconds_with_what_was_done_again": round(diary.seconds),
        "megabytes_per_second": round(text_bytes / 1e6 / diary.seconds, 3),
        **diary.memory(),
        **compare(corpus, (text.strip() for text in texts_of(folder / "text"))),
    }


def soak_datatrove(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    from benchmarks.soak_datatrove import plant

    generate(folder, options.mb)
    planted = plant(folder / "text", folder / "planted")
    tokenizer = folder / "tokenizer.json"
    if not tokenizer.exists():  # that of a part of the text
        (folder / "recipe.toml").write_text(
            RECIPE.replace('["text"]\nvocab', '["text/00000.jsonl"]\nvocab'), encoding="utf-8"
        )
        run = launch(
            [*CLEARHEAD, "prepare", str(folder / "recipe.toml"), "--out", str(folder / "part")],
            folder / "part.log",
            CLEARHEAD_DATA=str(folder),
        )
        assert run.wait() == 0, f"see {folder / 'part.log'}"
        shutil.copy(folder / "part/tokenizer.json", tokenizer)
    diary, out = Diary(folder / "datatrove.json"), folder / "theirs"
    text_bytes = size_of(folder / "planted")
    run_and_kill(
        [sys.executable, "-m", "benchmarks.soak_datatrove", str(folder)],
        diary,
        kills=options.faults,
        seconds=2 * text_bytes / 1e6 / GUESSED_SPEED,
        progress=lambda: size_of(out / "train"),
    )
    corpus = open_corpus(out)
    documents = corpus.facts("train").documents
    kept = compare(corpus, texts_of(folder / "kept"))
    found = {
        name: sum(name in text for text in texts_of(folder / "kept"))
        for name in ("planted marker", "planted repetition")
    }
    copies = documents - len({hash(text) for text in texts_of(folder / "kept")})
    return {
        "text_bytes": text_bytes,
        "tokens": corpus.facts("train").tokens["text"],
        "planted": planted,
        "left_of_what_was_planted": {**found, "copies": copies},
        "other_documents_removed": planted["originals"] - documents,
        "kills": diary.kills,
        "seconds_with_what_was_done_again": round(diary.seconds),
        "megabytes_per_second": round(text_bytes / 1e6 / diary.seconds, 3),
        **diary.memory(),
        **kept,
    }


# A model whose step takes about a tenth of a second; the recipe is one of `benchmarks.faults`.
TRAINING = [
    *("--model.d_model", "96", "--model.n_layers", "3", "--model.d_ff", "256"),
    *("--train.epochs", "1000000", "--train.steps", "1000000", "--train.save_every", "20"),
    *("--batches.batch_size", "64", "--train.timeout_minutes", "0.5"),
]
DISK_MB = 64
LONGEST_FULL = 300.0  # seconds in which a checkpoint must meet the full disk
FULL = "could not be written"
FAULTS = ("kill all", "disk full", "kill one")


def soak_training(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    bench, diary = Bench(folder, seed=1), Diary(folder / "training.json")
    wanted = folder / "undisturbed"
    if not ((wanted / "model").exists() and diary.samples):
        shutil.rmtree(wanted, ignore_errors=True)  # one that was stopped is not undisturbed
        diary.attempts.clear()
        diary.samples.clear()
        undisturbed(bench, wanted, diary, options.minutes)
    steps = len(lines(wanted))
    print(f"{steps} steps undisturbed", flush=True)
    disk = folder / "disk"
    disk.mkdir(exist_ok=True)
    if not os.path.ismount(disk):
        options_of = ["-o", f"size={DISK_MB}m"]
        subprocess.run(["mount", "-t", "tmpfs", *options_of, "tmpfs", str(disk)], check=True)
    run = disk / "disturbed"
    if not run.exists():
        diary.attempts.clear()
    disturbed(bench, run, diary, steps=steps, options=options)
    check_same(run, wanted)
    counts = [attempt["fault"] for attempt in diary.attempts]
    told = disk.with_suffix(".log").read_text(encoding="utf-8").count(FULL)
    assert not counts.count("disk full") or told, "no checkpoint met the full disk"
    measured = {
        "ranks": 2,
        "minutes": options.minutes,
        "steps": steps,
        "equal_to_the_bit": True,
        "weights_sha256": weights(run),
        "faults": {kind: counts.count(kind) for kind in FAULTS},
        "checkpoints_that_met_a_full_disk": told,
        **quarters(diary.samples),
    }
    subprocess.run(["umount", str(disk)], check=True)
    return measured


def undisturbed(bench: Bench, run: Path, diary: Diary, minutes: float) -> None:
    command = bench.train(
        "shakespeare", run, *TRAINING, "--train.max_minutes", str(minutes), ranks=2
    )
    began = time.monotonic()
    process = launch(command, run.with_suffix(".log"))
    while process.poll() is None:
        time.sleep(SAMPLED_EVERY)
        if (run / "metrics.jsonl").exists():
            diary.samples.append((time.monotonic() - began, anonymous_memory(process.pid)))
    assert process.wait() == 0, f"see {run.with_suffix('.log')}"
    diary.save()


def disturbed(
    bench: Bench, run: Path, diary: Diary, *, steps: int, options: argparse.Namespace
) -> None:
    """The same steps, with a fault from time to time; each kind in its turn."""
    more = [*TRAINING, "--train.steps", str(steps)]
    command = bench.train("shakespeare", run, *more, ranks=2, restarts=1000)
    chance = random.Random(len(diary.attempts))
    log, filler = run.parent.with_suffix(".log"), run.parent / "filler"
    between = 60 * options.minutes / (options.faults + 1)
    while not (run / "model").exists():
        filler.unlink(missing_ok=True)
        process = launch(command, log)
        while process.poll() is None and len(diary.attempts) < options.faults:
            kind, due = FAULTS[len(diary.attempts) % 3], chance.uniform(0.5, 1.5) * between
            if not wait(process, due):
                continue
            # A full disk refuses the start: a step must have come since.
            if kind == "disk full" and not wait_for_lines(process, run, len(lines(run))):
                continue
            workers = children(process.pid)
            if kind == "kill all":
                kill(process)
            elif kind == "kill one" and workers:
                os.kill(chance.choice(workers), signal.SIGKILL)
            elif kind == "disk full":
                free = shutil.disk_usage(run.parent).free
                filler.write_bytes(bytes(free))
                wait_for_warning(process, log)
                filler.unlink()
            diary.attempts.append({"fault": kind, "step": len(lines(run)), "killed": True})
            diary.save()
            print(diary.attempts[-1], flush=True)
            if kind == "kill all":
                break
        process.wait()


def wait(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether the process still runs after so long."""
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return True
    return False


def wait_for_warning(process: subprocess.Popen[bytes], log: Path) -> None:
    """Until a checkpoint has met the full disk."""
    before, began = log.read_text(encoding="utf-8").count(FULL), time.monotonic()
    while wait(process, SAMPLED_EVERY) and time.monotonic() - began < LONGEST_FULL:
        if log.read_text(encoding="utf-8").count(FULL) > before:
            return


def quarters(samples: list[tuple[float, int]]) -> dict[str, Any]:
    """Median memory of all processes of the undisturbed run, by quarters of its time."""
    start, end = samples[0][0], samples[-1][0]
    edges = [start + (end - start) * quarter / 4 for quarter in range(5)]
    medians = [
        median(memory for moment, memory in samples if low < moment <= high)
        for low, high in pairwise(edges)
    ]
    return {
        "median_mb_by_quarters": [round(each / 1e6, 1) for each in medians],
        "last_quarter_over_second": round(medians[3] / medians[1], 4),
    }


PARTS: dict[str, Callable[[Path, argparse.Namespace], dict[str, Any]]] = {
    "prepare": soak_prepare,
    "datatrove": soak_datatrove,
    "training": soak_training,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--mb", type=int, default=1000, help="of generated text")
    parser.add_argument("--faults", type=int, default=6, help="on the way")
    parser.add_argument("--minutes", type=float, default=40.0, help="of each run of training")
    parser.add_argument("--folder", type=Path, help="default: runs/soak-PART-SIZE")
    options = parser.parse_args()
    size = f"{options.minutes:g}m" if options.part == "training" else f"{options.mb}mb"
    folder: Path = (options.folder or Path(f"runs/soak-{options.part}-{size}")).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped; the same command continues"))
    try:
        measured = PARTS[options.part](folder, options)
    finally:
        end_all()
    measured["load_average_at_the_end"] = os.getloadavg()
    print(json.dumps(measured, indent=2))
    print("written:", write_result(f"soak_{options.part}", measured).name)


if __name__ == "__main__":
    main()
