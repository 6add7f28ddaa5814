"""The processes of a server. A single worker is this process itself. Several workers are separate
processes that share the port and are restarted if they end."""

import logging
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from dataclasses import replace
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch
import uvicorn

from clearhead.environment import one_tokenizer_thread, share_metrics
from clearhead.errors import ClearheadError
from clearhead.processes import starting_processes
from clearhead.serving.connections import ConnectionLimits, bounded_connections
from clearhead.serving.logs import LOGGER, log_as_json
from clearhead.serving.metrics import forget_worker
from clearhead.serving.server import ServerPlan, server_app

STOPS = (signal.SIGTERM, signal.SIGINT)
CANNOT_START = 3
"""The exit status of a worker that could not open its models."""
PAUSE = 5.0
"""The number of seconds between two starts: workers that end at once would keep the machine
busy."""
OTHER_FILES = 200
"""The number of a worker's files that are not connections, and of connections that are about to be
closed."""
_log = logging.getLogger(LOGGER)


def run_server(plan: ServerPlan, listening: socket.socket, n_workers: int) -> None:
    """Serve until SIGTERM or SIGINT, and then finish the requests that were accepted."""
    folder = Path(tempfile.mkdtemp(prefix="clearhead-serve-"))
    try:
        (folder / "files").mkdir(mode=0o700)
        plan = replace(plan, files=folder / "files")
        if n_workers == 1:
            run_worker(plan, listening)
            return
        (folder / "metrics").mkdir(mode=0o700)
        share_metrics(folder / "metrics")
        _supervise(plan, listening, n_workers)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_worker(plan: ServerPlan, listening: socket.socket) -> None:
    """Run one process with one core; the other cores are for the other workers."""
    torch.set_num_threads(1)
    one_tokenizer_thread()
    log_as_json(plan.log_level)
    # uvicorn itself stops at a signal, and then sends it again to these handlers.
    for number in STOPS:
        signal.signal(number, lambda *_: sys.exit(0))
    if (parent := multiprocessing.parent_process()) is not None:
        threading.Thread(target=_stop_with, args=(parent,), daemon=True).start()
    limits = plan.limits
    config = uvicorn.Config(
        server_app(plan),
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        http=bounded_connections(
            ConnectionLimits(
                _affordable(limits.max_connections), limits.max_per_address, limits.client_seconds
            )
        ),
        timeout_graceful_shutdown=int(limits.stop_seconds),
    )
    server = uvicorn.Server(config)
    server.run(sockets=[listening])
    if not server.started:
        sys.exit(CANNOT_START)


def _affordable(n_connections: int) -> int:
    """Return the number of connections that this process may open. Each connection is a file."""
    try:
        import resource
    except ImportError:  # Windows
        return n_connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = max(soft, n_connections + OTHER_FILES)
    soft = max(soft, min(hard, n_connections + OTHER_FILES))
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, min(n_connections, soft - OTHER_FILES))


def _stop_with(parent: BaseProcess) -> None:
    """End a worker whose supervisor was killed; it would otherwise continue to serve."""
    wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)


def _supervise(plan: ServerPlan, listening: socket.socket, n_workers: int) -> None:
    """Start the workers, and restart workers that end, in each place at most every PAUSE seconds. A
    worker that cannot open its models ends the server, since the next one could not open them
    either."""
    context = multiprocessing.get_context("spawn")
    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True

    before = [signal.signal(number, stop) for number in STOPS]
    workers: dict[int, BaseProcess] = {}  # by the place of the worker
    started = [-PAUSE] * n_workers
    failed = False
    while not (stopping or failed):
        for slot in range(n_workers):
            if slot not in workers and time.monotonic() - started[slot] >= PAUSE:
                started[slot] = time.monotonic()
                with starting_processes():
                    workers[slot] = context.Process(target=run_worker, args=(plan, listening))
                    workers[slot].start()
        wait([worker.sentinel for worker in workers.values()], timeout=0.5)
        for slot, worker in list(workers.items()):
            if worker.exitcode is None or stopping:
                continue
            fields = {"worker": worker.pid, "exit_status": worker.exitcode}
            _log.error("a worker has ended", extra={"fields": fields})
            forget_worker(worker.pid or 0)
            failed = failed or worker.exitcode == CANNOT_START
            del workers[slot]
    for worker in workers.values():
        worker.terminate()
    for worker in workers.values():
        worker.join()
    for number, handler in zip(STOPS, before):
        signal.signal(number, handler)
    if failed:
        raise ClearheadError("a worker could not open its models; its log says why")


def log_address(plan: ServerPlan, listening: socket.socket, *, is_open: bool) -> None:
    """Log the server's address, and whether other machines can use the server without a key."""
    log_as_json(plan.log_level)
    host, port = listening.getsockname()[:2]
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    pairs = {model.name: str(model.pair or "decoder") for model in plan.models}
    _log.info("listening on %s", url, extra={"fields": {"url": url, "models": pairs}})
    if is_open:
        _log.warning("every machine that reaches %s can use this server; see api_keys", url)
