"""What may go wrong around a server: `python -m benchmarks.serve faults`, in short."""

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from clearhead.cli import main
from clearhead.serving.workers import PAUSE
from tests.serving import faults
from tests.serving.process import RunningServer

pytestmark = pytest.mark.slow  # servers that are stopped and killed

TEXT = {"q": "ein Hund läuft", "source": "de", "target": "zh"}


class Small:
    """The random translator of the tests, as the faults take it."""

    def __init__(self, models: Path) -> None:
        self.models = models
        self.texts = [f"ein Hund läuft {number}" for number in range(50)]

    @contextmanager
    def running(self, *options: object) -> Iterator[RunningServer]:
        model = self.models / "random-de-zh"
        with RunningServer(model, "--max-new", 20, *options, cache=self.models / "cache") as server:
            server.wait_for("ready")
            yield server

    def body(self, texts: str | list[str]) -> bytes:
        return json.dumps({**TEXT, "q": texts}).encode()

    def bodies(self) -> list[bytes]:
        return [self.body(text) for text in self.texts]


@pytest.fixture
def small(models: Path) -> Small:
    return Small(models)


@pytest.fixture(scope="module")
def guarded(models: Path) -> Iterator[RunningServer]:
    """A server with keys, for one site. The last of its tests stops it."""
    arguments = (models / "random-de-zh", "--max-new", 20, "--allow-origin", "https://good.example")
    with RunningServer(*arguments, cache=models / "cache", keys="one, two") as server:
        server.wait_for("ready")
        yield server


def test_only_clients_with_a_key_are_answered(guarded: RunningServer):
    ask = guarded.ask
    assert ask("/translate", TEXT)[0] == 401
    assert ask("/translate", {**TEXT, "api_key": "three"})[0] == 403
    wrong = {"authorization": "Bearer three"}
    assert guarded.ask("/v1/models", headers=wrong)[0] == 401  # as OpenAI answers
    assert ask("/translate", {**TEXT, "api_key": ["one"]})[0] == 401
    assert ask("/translate", {**TEXT, "api_key": "two"})[0] == 200
    for path in ("/metrics", "/v1/models"):
        assert ask(path)[0] == 401
        assert ask(path, headers={"authorization": "Bearer one"})[0] == 200
    for path in ("/health", "/ready", "/languages", "/frontend/settings"):
        assert ask(path)[0] == 200
    logged = "".join(guarded.lines)
    assert "Hund" not in logged and "three" not in logged
    assert guarded.records("request")[0].keys() >= {"request", "route", "status", "ms"}


def test_only_pages_of_a_named_site_may_ask(guarded: RunningServer):
    origin = {"origin": "https://good.example"}
    request = urllib.request.Request(f"{guarded.url}/languages", headers=origin)
    with urllib.request.urlopen(request) as answer:
        assert answer.headers["access-control-allow-origin"] == origin["origin"]
    assert guarded.ask("/languages", headers={"origin": "https://other.example"})[0] == 403


def test_sigterm_under_load_loses_no_accepted_request(guarded: RunningServer):
    before = len(guarded.records("request"))
    bodies = [json.dumps({**TEXT, "api_key": "one"}).encode()]
    found = faults.stop_under_load(guarded, bodies, n_clients=16)
    assert found["exit_status"] == 0
    accepted = guarded.records("request")[before:]
    assert {record["status"] for record in accepted} == {200}
    assert len(accepted) == found["answers_that_clients_got"] > 20


@pytest.mark.slow
def test_a_killed_worker_comes_back_while_the_others_answer(small: Small):
    found = faults.worker_killed(small, seconds=12)
    assert found["workers"] == 2 and found["answered_after"]
    assert found["answers"]["200"] > 100
    assert found["answers"].get("none", 0) <= 8, "at most what the killed one was working on"


@pytest.mark.slow
def test_a_full_queue_refuses_and_recovers(small: Small):
    found = faults.full_queue(small)
    assert found["answers"].keys() == {"200", "503"} and found["afterwards"] == 200


@pytest.mark.slow
def test_slow_and_silent_clients_hold_nothing(small: Small):
    found = faults.slow_clients(small)
    assert found["another_client"] == 200 and found["held"] >= 200 and found["still_open"] <= 2


@pytest.mark.slow
def test_a_gigabyte_is_not_kept(small: Small):
    found = faults.huge_bodies(small)
    assert found["memory_grown_mb"] < 50 and found["afterwards"] == 200


@pytest.mark.slow
def test_figures_of_all_workers_are_added_up(small: Small):
    with small.running("--workers", 2) as server:
        server.wait_for("ready", 2)
        threads = [
            threading.Thread(target=server.ask, args=("/translate", TEXT)) for _ in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        text = server.ask("/metrics")[1]
        assert 'clearhead_requests_total{route="translate",status="200"} 20.0' in text
        assert server.stop() == 0


@pytest.mark.slow
def test_workers_end_when_their_supervisor_is_killed(small: Small):
    with small.running("--workers", 2) as server:
        server.wait_for("ready", 2)
        workers = psutil.Process(server.process.pid).children()
        server.process.kill()
        gone, alive = psutil.wait_procs(workers, timeout=20)
        assert not alive and len(gone) >= 2


@pytest.mark.slow
def test_a_worker_that_ends_at_once_is_started_again_after_a_pause(small: Small):
    with small.running("--workers", 2) as server:
        server.wait_for("ready", 2)
        supervisor, started = psutil.Process(server.process.pid), []
        known = {worker.pid for worker in workers_of(supervisor)}
        workers_of(supervisor)[0].kill()
        while len(started) < 2:
            for worker in workers_of(supervisor):
                if worker.pid not in known:
                    known.add(worker.pid)
                    started.append(worker.create_time())
                    worker.kill()
            time.sleep(0.05)
        assert started[1] - started[0] > PAUSE - 0.5
        assert server.stop() == 0


def workers_of(supervisor: psutil.Process) -> list[psutil.Process]:
    """Those that run, without the process that keeps track of shared memory."""
    found = []
    for each in supervisor.children():
        with suppress(psutil.Error):  # it has just ended
            if "spawn_main" in " ".join(each.cmdline()):
                found.append(each)
    return found


@pytest.mark.parametrize(
    ("arguments", "what_to_do"),
    [
        (["copy-task"], "name it, for example: de-en="),
        (["de-en=copy-task", "de-en=copy-task"], "give one of them another name"),
        (["english=copy-task"], "write it like en-zh"),
        (["nowhere"], "clearhead train RECIPE"),
        (["de-en=copy-task", "--log-level", "loud"], "choose from"),
        (["de-en=copy-task", "--api-keys", "nowhere"], "one key per line"),
        (["de-en=copy-task", "--port", "99999"], "--port 0 takes a free port"),
        (["de-en=copy-task", "--host", "256.0.0.1", "--port", "0"], "must be an address of this m"),
        (["de-en=copy-task", "--seconds", "0"], "must be at least 1"),
    ],
)
def test_what_cannot_be_served_is_said_before_anything_starts(
    arguments, what_to_do, models: Path, monkeypatch, capsys
):
    monkeypatch.setenv("CLEARHEAD_CACHE", str(models / "cache"))
    assert main(["serve", *arguments]) == 2
    assert what_to_do in capsys.readouterr().err
