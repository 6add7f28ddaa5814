"""What may go wrong around a server, done to a real one. Each function says what happened."""

import asyncio
import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any, Protocol

import psutil

from tests.serving.clients import Answer, load
from tests.serving.process import RunningServer

HEAD = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CLIENT_SECONDS = 15  # the limit of the server


class Subject(Protocol):
    """A model that can be served, and texts for it."""

    texts: list[str]

    def running(self, *options: object) -> AbstractContextManager[RunningServer]: ...

    def body(self, texts: str | list[str]) -> bytes: ...

    def bodies(self) -> list[bytes]: ...


def counted(found: list[Answer]) -> dict[str, int]:
    """How many answers of each status; "none": the connection ended without one."""
    return {str(s or "none"): n for s, n in sorted(Counter(s for s, _ in found).items())}


def worker_killed(served: Subject, seconds: float = 20) -> dict[str, Any]:
    """kill -9 of one of two workers while 8 clients ask."""
    with served.running("--workers", 2) as server:
        server.wait_for("ready", 2)
        workers = {p.pid for p in psutil.Process(server.process.pid).children() if _serves(p)}
        found: list[Answer] = []
        thread = threading.Thread(
            target=lambda: found.extend(asyncio.run(load(server.port, served.bodies(), 8, seconds)))
        )
        thread.start()
        time.sleep(2)
        killed = time.monotonic()
        os.kill(min(workers), signal.SIGKILL)
        server.wait_for("ready", 3)
        back = time.monotonic() - killed
        thread.join()
        return {
            "workers": len(workers),
            "answers": counted(found),
            "seconds_until_it_was_back": round(back, 1),
            "answered_after": server.ask("/health")[0] == 200,
        }


def _serves(process: psutil.Process) -> bool:
    """Not the helper that watches what processes share."""
    return "resource_tracker" not in " ".join(process.cmdline())


def stopped_under_load(served: Subject, n_clients: int = 32) -> dict[str, Any]:
    """SIGTERM while clients ask."""
    with served.running() as server:
        return stop_under_load(server, served.bodies(), n_clients)


def stop_under_load(server: RunningServer, bodies: list[bytes], n_clients: int) -> dict[str, Any]:
    """The server's own log says what it has accepted."""
    found: list[Answer] = []
    thread = threading.Thread(
        target=lambda: found.extend(asyncio.run(load(server.port, bodies, n_clients, 3)))
    )
    thread.start()
    time.sleep(1.5)
    started = time.monotonic()
    status = server.stop()
    seconds = time.monotonic() - started
    thread.join()
    logged = list(server.records("request"))
    answered = sum(code == 200 for code, _ in found)
    return {
        "exit_status": status,
        "seconds_to_stop": round(seconds, 2),
        "accepted_by_the_server": len(logged),
        "of_these_not_answered": sum(record["status"] != 200 for record in logged),
        "answers_that_clients_got": answered,
        "refused_connections": sum(code == 0 for code, _ in found),
    }


def full_queue(served: Subject, n_clients: int = 64) -> dict[str, Any]:
    """Clients that ask for more than may wait; then one that asks for little."""
    with served.running("--max-waiting", 400) as server:
        bodies = [served.body(served.texts[:40])]
        found = asyncio.run(load(server.port, bodies, n_clients, 4))
        status, answer = server.ask("/translate", served.body(served.texts[0]))
        return {"answers": counted(found), "afterwards": status, "text": bool(answer)}


def slow_clients(served: Subject, n: int = 200) -> dict[str, Any]:
    """Connections that say nothing, half a head, half a body, and one that never reads; meanwhile
    another client is answered."""
    body = served.body(served.texts[0])
    begun = HEAD + b"Content-Length: %d\r\n\r\n" % len(body)
    silent = (b"", HEAD, begun, begun + body[:-1])
    with served.running() as server:
        process = psutil.Process(server.process.pid)
        before = process.num_fds()
        connections = []
        for number in range(n):
            connection = socket.create_connection(("127.0.0.1", server.port))
            connection.sendall(silent[number % len(silent)])
            connections.append(connection)
        started = time.monotonic()
        status, _ = server.ask("/translate", body)
        meanwhile = time.monotonic() - started
        held = process.num_fds() - before
        while process.num_fds() > before + 2 and time.monotonic() - started < 3 * CLIENT_SECONDS:
            time.sleep(0.2)
        freed = time.monotonic() - started
        left = process.num_fds() - before
        for connection in connections:
            connection.close()
        return {
            "connections": n,
            "held": held,
            "another_client": status,
            "its_ms": round(1000 * meanwhile, 1),
            "seconds_until_all_were_closed": round(freed, 1),
            "still_open": left,
        }


def huge_bodies(served: Subject) -> dict[str, Any]:
    """A gigabyte: announced, and in chunks without an end."""
    with served.running() as server:
        process = psutil.Process(server.process.pid)
        before = process.memory_info().rss
        answers: dict[str, str] = {}
        for kind in ("announced", "chunked"):
            with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
                sent, piece = 0, b"a" * 65_536
                if kind == "announced":
                    connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % 10**9)
                else:
                    connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
                    piece = b"10000\r\n" + piece + b"\r\n"
                first = b""
                try:
                    while sent < 10**9:
                        connection.sendall(piece)
                        sent += len(piece)
                except OSError:
                    pass
                with suppress(OSError):
                    first = connection.recv(4096)
                line = first.split(b"\r\n")[0].decode() or "closed"
                answers[kind] = f"{line} after {sent / 1e6:.1f} MB"
        grown = (process.memory_info().rss - before) / 1e6
        status, _ = server.ask("/translate", served.body(served.texts[0]))
        return {**answers, "memory_grown_mb": round(grown, 1), "afterwards": status}


FAULTS: dict[str, Callable[[Subject], dict[str, Any]]] = {
    "worker_killed": worker_killed,
    "stopped_under_load": stopped_under_load,
    "full_queue": full_queue,
    "slow_clients": slow_clients,
    "huge_bodies": huge_bodies,
}
