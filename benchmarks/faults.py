"""Training runs that are killed, stopped, damaged and starved, each held against the same run left
alone: every step's loss in hexadecimal, and the sha256 of the final weights.

    python -m benchmarks.faults                 # all of it, about an hour
    python -m benchmarks.faults kills --n 10    # one part

Needs CLEARHEAD_DATA (Tatoeba and Tiny Shakespeare); the disk-full part needs to be root, to mount a
small file system.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clearhead.training.checkpoint import Checkpoints
from clearhead.training.distributed import Ranks
from clearhead.training.report import TIMED, read_metrics
from tools.result import write_result

COMMON = """
[train]
steps = 100000
epochs = 2
micro_batches = 3
lr = 0.003
warmup_steps = 50
save_every = 10
log_every = 1000
"""
RECIPES = {
    "tatoeba": """
[data]
task = "pairs"
format = "tsv"
train = ["tatoeba_cmn_eng/train.tsv.gz"]
columns = [1, 2]
vocab_size = 1000
vocabularies = "shared"
[batches]
batch_tokens = 4000
[model]
d_model = 32
n_layers = 1
n_heads = 4
d_ff = 48
max_length = 512
p_attention_dropout = 0.1
"""
    + COMMON,
    "shakespeare": """
[data]
train = ["tiny_shakespeare/input.txt.gz"]
document = "file"
tokenizer = "character"
[batches]
length = 64
batch_size = 160
[model]
family = "decoder"
positions = "learned"
d_model = 32
n_layers = 1
n_heads = 4
d_ff = 48
max_length = 64
"""
    + COMMON,
}
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
CLEARHEAD = [sys.executable, "-m", "clearhead"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]


class Bench:
    """A folder with the recipes, their prepared data, and the runs that nobody touched."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.chance = folder, random.Random(seed)
        self.fresh = 0
        for name, text in RECIPES.items():
            (folder / f"{name}.toml").write_text(text, encoding="utf-8")
            where = ["--out", str(folder / "prepared" / name)]
            prepare = [*CLEARHEAD, "prepare", str(folder / f"{name}.toml"), *where]
            finish(prepare)

    def train(
        self, name: str, run: Path, *more: str, ranks: int = 0, restarts: int = 0
    ) -> list[str]:
        """The command line of a run; with ranks, under torchrun."""
        start = CLEARHEAD
        if ranks:
            launch = [f"--nproc-per-node={ranks}", f"--max-restarts={restarts}"]
            start = [*TORCHRUN, *launch, "-m", "clearhead"]
        where = ["--prepared", str(self.folder / "prepared" / name), "--folder", str(run)]
        return [*start, "train", str(self.folder / f"{name}.toml"), *where, *more]

    def new_run(self) -> Path:
        self.fresh += 1
        return self.folder / f"run-{self.fresh}"

    def alone(self, name: str, *more: str, ranks: int = 0) -> Path:
        run = self.new_run()
        finish(self.train(name, run, *more, ranks=ranks))
        return run


def start(command: list[str], **environment: str) -> subprocess.Popen[bytes]:
    out, environment = subprocess.PIPE, {**ENVIRONMENT, **environment}
    return subprocess.Popen(
        command, env=environment, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
    )


def finish(command: list[str], expected: int = 0) -> str:
    process = start(command)
    out = process.communicate()[0].decode()
    assert process.returncode == expected, f"{process.returncode}: {out}"
    return out


def lines(run: Path) -> list[str]:
    """The log of a run without what the clock put there, as bytes are compared."""
    return [
        json.dumps({key: value for key, value in line.items() if key not in TIMED})
        for line in read_metrics(run / "metrics.jsonl")
    ]


def weights(run: Path) -> str:
    return hashlib.sha256((run / "model/model.safetensors").read_bytes()).hexdigest()


def check_same(run: Path, wanted: Path) -> None:
    assert lines(run) == lines(wanted), f"{run}: the logs differ"
    assert weights(run) == weights(wanted), f"{run}: the weights differ"


def wait_for_lines(process: subprocess.Popen[bytes], run: Path, more_than: int) -> bool:
    """Whether the run has written a line beyond those before it ended."""
    path = run / "metrics.jsonl"
    while process.poll() is None:
        if path.exists() and path.read_bytes().count(b"\n") > more_than:
            return True
        time.sleep(0.02)
    return False


def whole_checkpoints(run: Path) -> list[int]:
    checkpoints = Checkpoints(run / "checkpoints", Ranks())
    return [step for step in checkpoints.steps() if checkpoints.verified(step)[0] is not None]


def kills(bench: Bench, n: int) -> dict[str, Any]:
    """kill -9 at random moments; a run that has come to its end is compared and begun anew."""
    done = {}
    for name in RECIPES:
        wanted, run, killed, finished = bench.alone(name), bench.new_run(), 0, 0
        steps = len(lines(wanted))
        while killed < n // len(RECIPES):
            process = start(bench.train(name, run))
            # Anywhere: in the start, in a step, in a checkpoint, in the writing of the model.
            time.sleep(bench.chance.choice([3.0, 7.0, 12.0]) * bench.chance.random())
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                killed += 1
            process.wait()
            if (run / "model").exists():
                finish(bench.train(name, run))
                check_same(run, wanted)
                run, finished = bench.new_run(), finished + 1
        finish(bench.train(name, run))
        check_same(run, wanted)
        done[name] = {"kills": killed, "runs compared": finished + 1, "steps of a run": steps}
        print("kills", name, done[name], flush=True)
    return done


def crash_points(bench: Bench, n: int) -> dict[str, Any]:  # noqa: ARG001 (every point is tried)
    """Death before each write, sync and rename of the first checkpoints, one after the other."""
    name, point = "tatoeba", 0
    wanted, run = bench.alone(name), bench.new_run()
    while True:
        point += 1
        had = whole_checkpoints(run) if run.exists() else []
        process = start(bench.train(name, run), CLEARHEAD_CRASH_AT=str(point))
        process.communicate()
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL
        assert not had or whole_checkpoints(run), f"point {point} left no checkpoint"
        if point == 40:  # three checkpoints' worth, with what they remove
            finish(bench.train(name, run))
            break
    check_same(run, wanted)
    return {"points tried": point}


def stops(bench: Bench, n: int) -> dict[str, Any]:
    """SIGTERM to one of two ranks: both end at the same step, with a checkpoint."""
    name, stopped = "shakespeare", 0
    wanted = bench.alone(name, ranks=2)
    run = bench.new_run()
    while stopped < n:
        command = bench.train(name, run, ranks=2)
        process = start(command)
        before = len(lines(run)) if run.exists() else 0
        if wait_for_lines(process, run, before + bench.chance.randrange(1, 12)):
            os.kill(bench.chance.choice(children(process.pid)), signal.SIGTERM)
            out = process.communicate()[0].decode()
            assert process.returncode == 0 and "Run the same command to resume" in out, out
            stopped += 1
            assert whole_checkpoints(run)[-1] == len(lines(run)), "no checkpoint of the last step"
        else:
            process.communicate()
            check_same(run, wanted)
            run = bench.new_run()
    finish(bench.train(name, run, ranks=2))
    check_same(run, wanted)
    return {"stops": stopped}


def children(agent: int) -> list[int]:
    listed = subprocess.run(["pgrep", "-P", str(agent)], capture_output=True, text=True).stdout
    return [int(pid) for pid in listed.split()]


def restarts(bench: Bench, n: int) -> dict[str, Any]:
    """One of two workers killed while torchrun watches, which starts them again by itself."""
    name, killed, rounds = "shakespeare", 0, 0
    wanted = bench.alone(name, ranks=2)
    while killed < n:
        run, rounds = bench.new_run(), rounds + 1
        # Ranks that come up beside one that is still going down may wait in vain once more.
        soon = ["--train.timeout_minutes", "0.5"]
        process = start(bench.train(name, run, *soon, ranks=2, restarts=4 * n))
        while process.poll() is None and killed < n:
            before = len(lines(run)) if run.exists() else 0
            if wait_for_lines(process, run, before + bench.chance.randrange(1, 15)):
                workers = children(process.pid)
                if len(workers) == 2:
                    os.kill(bench.chance.choice(workers), signal.SIGKILL)
                    killed += 1
                    while process.poll() is None and set(children(process.pid)) & set(workers):
                        time.sleep(0.05)
                    for _ in range(200):  # the lines of steps that are taken again go away first
                        time.sleep(0.05)
                        if len(children(process.pid)) == 2:
                            break
                    time.sleep(6)
        out = process.communicate()[0].decode()
        assert process.returncode == 0, out
        check_same(run, wanted)
    return {"workers killed": killed, "runs compared": rounds}


def damage(bench: Bench, n: int) -> dict[str, Any]:  # noqa: ARG001
    """Bits flipped and files cut: each is found by hashing, before anything of it is read."""
    run = bench.alone("tatoeba", "--train.epochs", "1", "--train.steps", "10")
    checkpoints = Checkpoints(run / "checkpoints", Ranks())
    folder = run / "checkpoints/step-00000010"
    files = sorted(folder.iterdir())
    flips = cuts = 0
    for trial in range(220):
        path = bench.chance.choice(files)
        content = path.read_bytes()
        if trial < 200:
            bit = bench.chance.randrange(8 * len(content))
            changed = bytearray(content)
            changed[bit // 8] ^= 1 << bit % 8
        else:
            changed = content[: bench.chance.randrange(len(content))]
        path.write_bytes(changed)
        found = checkpoints.verified(10)[0]
        path.write_bytes(content)
        assert found is None, f"{path.name}, trial {trial}"
        flips, cuts = flips + (trial < 200), cuts + (trial >= 200)
    assert checkpoints.verified(10)[0] is not None
    return {"bits flipped": flips, "files cut": cuts, "undetected": 0}


def disk_full(bench: Bench, n: int) -> dict[str, Any]:  # noqa: ARG001
    """A disk that fills up at every file of a checkpoint in turn, then has room again."""
    name = "tatoeba"
    wanted = bench.alone(name)
    run = bench.new_run()
    mount = run / "checkpoints"  # a link to another disk is refused in a run's folder
    mount.mkdir(parents=True)
    told = set()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(mount)], check=True)
    try:
        finish(bench.train(name, run, "--train.steps", "10"))
        sizes = sorted(file.stat().st_size for file in (mount / "step-00000010").iterdir())
        size, pages = sum(sizes), 4096 * len(sizes)
        rooms = [size // 2, sizes[-1] + 4096, sizes[-1] + sizes[-2] + 8192, size + pages // 2, 0]
        for room in rooms:
            filler = mount / "filler"
            free = shutil.disk_usage(mount).free
            filler.write_bytes(b"x" * max(0, free - room))
            before = whole_checkpoints(run)
            steps = str(before[-1] + 10)
            process = start(bench.train(name, run, "--train.steps", steps))
            out = process.communicate()[0].decode()
            if process.returncode == 0:
                filler.unlink()
                continue  # it fitted after all
            message = next(line for line in out.splitlines() if "could not be written" in line)
            assert "No space left on device (errno 28)" in message, message
            told.add(Path(message.split("written: ")[1].split(": No space")[0]).name)
            assert whole_checkpoints(run) == before, "an older checkpoint has suffered"
            filler.unlink()
        finish(bench.train(name, run))
        # The steps that were given on the way are no part of what is compared.
        check_same(run, wanted)
    finally:
        subprocess.run(["umount", str(mount)], check=True)
    return {"rooms tried": len(rooms), "files at which it was full": sorted(told)}


def worlds(bench: Bench, n: int) -> dict[str, Any]:  # noqa: ARG001
    """1 → 2 → 4 → 1 ranks, sharded (with four, in two groups), against one process throughout."""
    name = "shakespeare"
    still = ["--model.p_dropout", "0", "--train.parallel", "fsdp", "--train.micro_batches", "1"]
    wanted, run = bench.alone(name, *still, "--train.steps", "80"), bench.new_run()
    for ranks, steps in ((0, 20), (2, 40), (4, 60), (0, 80)):
        groups = ["--train.replicas", "2"] if ranks == 4 else []
        more = [*still, *groups, "--train.steps", str(steps)]
        finish(bench.train(name, run, *more, ranks=ranks))
    pairs = list(zip(read_metrics(run / "metrics.jsonl"), read_metrics(wanted / "metrics.jsonl")))
    worst = max(abs(one["loss"] / other["loss"] - 1) for one, other in pairs)
    assert len(pairs) == 80
    assert [one["targets"] for one, _ in pairs] == [other["targets"] for _, other in pairs]
    assert worst <= 1e-6, worst
    return {"steps": len(pairs), "largest relative difference of a loss": worst}


def stuck(bench: Bench, n: int) -> dict[str, Any]:  # noqa: ARG001
    """A rank that stands still is named by the one that waits."""
    run = bench.new_run()
    command = bench.train("shakespeare", run, "--train.timeout_minutes", "0.1", ranks=2)
    process = start(command)
    assert wait_for_lines(process, run, 5)
    frozen = children(process.pid)[1]
    os.kill(frozen, signal.SIGSTOP)
    time.sleep(20)
    os.kill(frozen, signal.SIGCONT)
    out = process.communicate()[0].decode()
    said = next(line for line in out.splitlines() if "waited without success" in line)
    assert f"for rank 1 (process {frozen} on " in said, said
    return {"said": said.split(" on ")[0].replace(str(frozen), "PID") + " on …"}


def nan(bench: Bench, n: int) -> dict[str, Any]:  # noqa: ARG001
    """NaN in the loss, in one gradient, on one rank: the tests that plant them."""
    chosen = ["tests/training", "-k", "nan or finite", "-q", "-p", "no:cacheprovider"]
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", *chosen], capture_output=True, text=True
    )
    assert tests.returncode == 0, tests.stdout
    return {"tests": tests.stdout.splitlines()[-1].split(" in ")[0]}


PARTS: dict[str, tuple[Callable[[Bench, int], dict[str, Any]], int]] = {
    "kills": (kills, 50),
    "crash_points": (crash_points, 0),
    "stops": (stops, 20),
    "restarts": (restarts, 20),
    "damage": (damage, 0),
    "disk_full": (disk_full, 0),
    "worlds": (worlds, 0),
    "stuck": (stuck, 0),
    "nan": (nan, 0),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="default: all")
    parser.add_argument("--n", type=int, help="instead of the usual number of faults")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), arguments.seed)
        results = {}
        for name in arguments.parts or PARTS:
            part, usual = PARTS[name]
            started = time.monotonic()
            results[name] = part(bench, usual if arguments.n is None else arguments.n)
            results[name]["seconds"] = round(time.monotonic() - started)
            print(name, results[name], flush=True)
    name = "-".join(["faults", *arguments.parts])
    print("written:", write_result(name, {"seed": arguments.seed, "faults": results}).name)


if __name__ == "__main__":
    main()
