"""Real processes, killed and stopped: what is resumed is the run that was never broken."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clearhead.config import recipe_toml
from clearhead.data.corpus import Corpus
from clearhead.training.signals import STOPPED
from tests.training.small import PAIRS, TEXT, go, timeless, with_model, with_train

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def command(recipe, corpus: Corpus, folder: Path, *more: str) -> list[str]:
    """`clearhead train` of a recipe that is written beside the run."""
    path = folder.parent / f"{folder.name}.toml"
    path.write_text(recipe_toml(recipe), encoding="utf-8")
    where = ["--prepared", str(corpus.folder), "--folder", str(folder)]
    return [sys.executable, "-m", "clearhead", "train", str(path), *where, *more]


def start(arguments: list[str], **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        arguments,
        env={**ENVIRONMENT, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(arguments: list[str], **environment: str) -> tuple[int, str]:
    process = start(arguments, **environment)
    out = process.communicate(timeout=600)[0]
    return process.returncode, out


def steps_taken(folder: Path) -> int:
    return sum("lr" in line for line in timeless(folder)) if folder.exists() else 0


def wait_for_step(process: subprocess.Popen, folder: Path, step: int) -> None:
    while steps_taken(folder) < step and process.poll() is None:
        time.sleep(0.01)


def weights(folder: Path) -> bytes:
    return (folder / "model/model.safetensors").read_bytes()


@pytest.mark.parametrize("both", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_reader_that_leaves_does_not_end_the_training(pairs: Corpus, tmp_path: Path, both: bool):
    """`clearhead train … | head -1`, and the same with `2>&1`."""
    recipe = with_train(PAIRS, steps=6, log_every=1, validate_every=3)
    process = subprocess.Popen(
        command(recipe, pairs, tmp_path / "run"),
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if both else subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    said = "" if process.stderr is None else process.stderr.read()
    assert process.wait(timeout=600) == 0
    assert (tmp_path / "run/model/model.safetensors").is_file()
    assert "ended after step 6" in (tmp_path / "run/log.txt").read_text(encoding="utf-8")
    assert said.count("the command continues") == (0 if both else 1) and "Traceback" not in said


@pytest.fixture(scope="module")
def unbroken(pairs: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unbroken") / "run"
    code, out = finish(command(RECIPE, pairs, folder))
    assert code == 0, out
    return folder


RECIPE = with_train(PAIRS, steps=60, save_every=4, keep=2)


@pytest.mark.slow
def test_killed_at_five_random_moments(pairs: Corpus, unbroken: Path, tmp_path: Path):
    folder, chance = tmp_path / "run", random.Random(5)
    arguments = command(RECIPE, pairs, folder)
    for step in sorted(chance.sample(range(5, 55), 5)):
        process = start(arguments)
        wait_for_step(process, folder, step)
        time.sleep(chance.random() * 0.05)
        process.kill()
        assert process.wait() == -signal.SIGKILL
    code, out = finish(arguments)
    assert code == 0 and "resuming after step" in out
    assert "missing or changed" not in (folder / "log.txt").read_text(encoding="utf-8")
    assert timeless(folder) == timeless(unbroken)
    assert weights(folder) == weights(unbroken)


@pytest.mark.slow
def test_a_signal_ends_the_step_saves_and_says_how_to_go_on(
    pairs: Corpus, unbroken: Path, tmp_path: Path
):
    folder = tmp_path / "run"
    arguments = command(with_train(RECIPE, save_every=0), pairs, folder)
    for number, step in ((signal.SIGTERM, 20), (signal.SIGINT, 40)):
        process = start(arguments)
        wait_for_step(process, folder, step)
        process.send_signal(number)
        process.send_signal(number)  # a second one changes nothing
        out = process.communicate(timeout=600)[0]
        assert process.returncode == STOPPED == 75, out
        assert f": {number.name}" in out and "Run the same command to resume" in out
        taken = steps_taken(folder)
        newest = sorted((folder / "checkpoints").iterdir())[-1]
        assert newest.name == f"step-{taken:08}" and step <= taken < 60
    code, out = finish(arguments)
    assert code == 0 and f"resuming after step {taken}" in out
    assert timeless(folder) == timeless(unbroken)
    assert weights(folder) == weights(unbroken)


@pytest.mark.slow
def test_a_signal_to_the_whole_group_stops_a_run_with_workers_too(text: Corpus, tmp_path: Path):
    folder = tmp_path / "run"
    arguments = command(with_train(TEXT, steps=10**6, workers=2, save_every=0), text, folder)
    process = subprocess.Popen(
        arguments, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    wait_for_step(process, folder, 5)
    os.killpg(process.pid, signal.SIGTERM)
    out = process.communicate(timeout=600)[0]
    assert process.returncode == STOPPED and ": SIGTERM" in out, out


@pytest.mark.slow
def test_max_minutes_stops_the_same_way(text: Corpus, tmp_path: Path):
    recipe = with_train(TEXT, steps=100_000, save_every=0, max_minutes=0.01)
    code, out = finish(command(recipe, text, tmp_path / "run"))
    assert code == STOPPED and ": max_minutes" in out
    assert (tmp_path / "run/model/model.safetensors").is_file()


@pytest.mark.slow
def test_a_crash_at_any_write_sync_or_rename_leaves_a_checkpoint_to_go_on_from(
    pairs: Corpus, unbroken: Path, tmp_path: Path
):
    """A sample of the moments; benchmarks/faults.py tries every one."""
    folder = tmp_path / "run"
    arguments = command(RECIPE, pairs, folder)
    for point in ("5", "20", "8"):
        process = start(arguments, CLEARHEAD_CRASH_AT=point)
        out = process.communicate(timeout=600)[0]
        assert process.returncode == -signal.SIGKILL, out
    assert "resuming after step" in out
    code, out = finish(arguments)
    assert code == 0, out
    assert timeless(folder) == timeless(unbroken)
    assert weights(folder) == weights(unbroken)


@pytest.mark.slow
def test_two_processes_cannot_train_in_one_folder(pairs: Corpus, tmp_path: Path):
    folder = tmp_path / "run"
    arguments = command(with_train(RECIPE, steps=10**6), pairs, folder)
    first = start(arguments)
    wait_for_step(first, folder, 1)
    code, out = finish(arguments)
    first.kill()
    first.wait()
    assert code == 2 and f"another process trains in {folder}; wait for it" in out


def test_metrics_hold_every_step_in_hexadecimal(text: Corpus, tmp_path: Path):
    lines = go(with_train(TEXT, steps=9), text, tmp_path / "run").lines
    assert [line["step"] for line in lines] == list(range(1, 10))
    for line in lines:
        assert float.fromhex(line["loss_hex"]) == line["loss"]
    raw = (tmp_path / "run/metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert all(json.loads(line)["tokens_per_second"] > 0 for line in raw)


@pytest.mark.slow
def test_compiling_changes_no_step_beyond_rounding(text: Corpus, tmp_path: Path):
    """In a process of its own: the checks of shapes in these tests cannot be compiled."""
    still = with_model(with_train(TEXT, steps=5), p_dropout=0.0, p_attention_dropout=0.0)
    for name, compiled in (("plain", False), ("compiled", True)):
        arguments = command(with_train(still, compile=compiled), text, tmp_path / name)
        code, out = finish(arguments)
        assert code == 0, out
    for one, other in zip(timeless(tmp_path / "compiled"), timeless(tmp_path / "plain")):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-4)


@pytest.mark.slow
def test_ranks_of_two_machines_start_again_together(pairs: Corpus, tmp_path: Path):
    """Two torchruns on this machine: only the one whose worker died counts a restart."""
    folder, recipe = tmp_path / "run", with_train(RECIPE, steps=24, save_every=2)
    python, *rest = command(recipe, pairs, folder, "--train.timeout_minutes", "1")
    with socket.socket() as free:
        free.bind(("localhost", 0))
        endpoint = f"localhost:{free.getsockname()[1]}"
    torchrun = [python, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
    torchrun += ["--max-restarts=1", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}"]
    machines = [start([*torchrun, "--local-addr=localhost", *rest]) for _ in range(2)]
    wait_for_step(machines[0], folder, 3)
    pid = machines[1].pid
    worker = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[-1]
    os.kill(int(worker), signal.SIGKILL)
    said = [machine.communicate(timeout=300)[0] for machine in machines]
    assert [machine.returncode for machine in machines] == [0, 0], said
    assert "".join(said).count("resuming after step") == 1 and steps_taken(folder) == 24


@pytest.mark.slow
def test_ranks_that_torchrun_starts_again_go_on_and_do_not_wait_for_the_dead(
    pairs: Corpus, tmp_path: Path
):
    folder, recipe = tmp_path / "run", with_train(RECIPE, steps=24, save_every=2)
    python, *rest = command(recipe, pairs, folder, "--train.timeout_minutes", "0.5")
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    process = start([python, *torchrun, "--max-restarts=1", *rest])
    wait_for_step(process, folder, 3)
    workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(workers[-1]), signal.SIGKILL)
    out = process.communicate(timeout=300)[0]
    assert process.returncode == 0, out
    assert out.count("resuming after step") == 1 and steps_taken(folder) == 24
