"""Clients that try to stop a server for others: without a key, and without doing much."""

import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest

from tests.serving.process import RunningServer

TEXT = {"q": "ein Hund läuft", "source": "de", "target": "zh"}
HEAD = b"POST /translate HTTP/1.1\r\nHost: localhost\r\n"
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
CLIENT_SECONDS = 1
MAX_CONNECTIONS, MAX_PER_ADDRESS = 24, 16


@pytest.fixture(scope="module")
def guarded(models: Path) -> Iterator[RunningServer]:
    """A server with keys."""
    arguments = (models / "random-de-zh", "--max-new", 20)
    with RunningServer(*arguments, cache=models / "cache", keys="one, two") as server:
        server.wait_for("ready")
        yield server


@pytest.fixture(scope="module")
def hasty(models: Path) -> Iterator[RunningServer]:
    """A server whose clients have little time, and few connections."""
    limits = (
        "--client-seconds", CLIENT_SECONDS, "--max-connections", MAX_CONNECTIONS,
        "--max-per-address", MAX_PER_ADDRESS,
    )  # fmt: skip
    arguments = (models / "random-de-zh", "--max-new", 20, *limits)
    with RunningServer(*arguments, cache=models / "cache") as server:
        server.wait_for("ready")
        yield server


@pytest.fixture
def many_files() -> Iterator[None]:
    """Each connection is a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connected(server: RunningServer, source: str = "127.0.0.1") -> socket.socket:
    address = ("127.0.0.1", server.port)
    return socket.create_connection(address, timeout=10, source_address=(source, 0))


def answer_to(connection: socket.socket) -> bytes:
    """The head of one answer, and what comes with it."""
    found = b""
    while b"\r\n\r\n" not in found and (piece := connection.recv(65536)):
        found += piece
    return found


def is_open(connection: socket.socket) -> bool:
    """Whether the server has left it open; what it has answered is read."""
    connection.setblocking(False)
    try:
        while connection.recv(65536):
            pass
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def seconds_until_closed(connection: socket.socket, piece: bytes, most: float = 8) -> float:
    """How long the server takes to close it, while a piece is sent every fifth of a second."""
    started = time.monotonic()
    while time.monotonic() - started < most and is_open(connection):
        time.sleep(0.2)
        with suppress(OSError):
            connection.send(piece)
    return time.monotonic() - started


def form(head: bytes, n_parts: int) -> bytes:
    part = b'--B\r\nContent-Disposition: form-data; name="q"' + head + b"\r\n\r\nx\r\n"
    body = part * n_parts + b"--B--\r\n"
    kind = b"Content-Type: multipart/form-data; boundary=B\r\n"
    return HEAD + kind + b"Content-Length: %d\r\n" % len(body) + b"%s\r\n" + body


@pytest.mark.parametrize(
    ("key", "status"), [(b"", b"401"), (b"Authorization: Bearer one\r\n", b"400")]
)
@pytest.mark.parametrize(
    ("head", "n_parts"), [(b";" * 8100, 36), (b'";' * 200, 64), (b"\r\nA: b" * 1000, 36)]
)
def test_the_headers_of_a_form_do_not_keep_others_waiting(
    guarded: RunningServer, key: bytes, status: bytes, head: bytes, n_parts: int
):
    with connected(guarded) as connection:
        started = time.monotonic()
        connection.sendall(form(head, n_parts) % key)
        time.sleep(0.1)
        assert guarded.ask("/health")[0] == 200
        assert answer_to(connection).split()[1] == status
        assert time.monotonic() - started < 3


def test_the_type_of_a_body_does_not_keep_others_waiting(guarded: RunningServer):
    kind = b"Content-Type: multipart/form-data; boundary=B" + b'";' * 15_000
    key = b"Authorization: Bearer one\r\n"
    with connected(guarded) as connection:
        started = time.monotonic()
        connection.sendall(HEAD + key + kind + b"\r\nContent-Length: 6\r\n\r\n--B--\r")
        assert answer_to(connection).split()[1] == b"400"
        assert time.monotonic() - started < 3


@pytest.mark.parametrize("path", [b"/translate", b"/detect", b"/translate_file"])
def test_a_wrong_key_is_refused_before_the_body_has_come(guarded: RunningServer, path: bytes):
    for target, key in (
        (path, b"Authorization: Bearer three\r\n"),
        (path + b"?api_key=three", b""),
    ):
        head = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90\r\n" % target
        with connected(guarded) as connection:
            connection.sendall(head + key + b"\r\n")
            connection.settimeout(5)
            answer = answer_to(connection).lower()
            assert answer.split()[1] == b"403" and b"connection: close" in answer


def test_a_key_may_be_in_the_head_the_address_or_the_body(guarded: RunningServer):
    headers = {"authorization": "Bearer one"}
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert guarded.ask("/translate", TEXT, headers=headers)[0] == 200
    assert guarded.ask("/translate?api_key=two", TEXT)[0] == 200
    assert guarded.ask("/translate", {**TEXT, "api_key": "one"})[0] == 200
    body = b"q=Hund&source=de&target=zh&api_key=two"
    assert guarded.ask("/translate", body, headers=form)[0] == 200
    assert guarded.ask("/translate", body[:-1], headers=form)[0] == 403
    assert guarded.ask("/translate", {**TEXT, "api_key": ["one"]})[0] == 401


def test_an_answer_before_the_end_of_a_request_ends_the_connection(guarded: RunningServer):
    heads = (
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n",
        b"POST /nothing HTTP/1.1\r\nHost: localhost\r\n",
        b"POST /translate HTTP/1.1\r\nHost: other.example\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n",
    )
    process = psutil.Process(guarded.process.pid)
    with ExitStack() as stack:
        before = process.num_fds()
        for head in heads:
            for length in (b"Content-Length: 1000", b"Transfer-Encoding: chunked"):
                connection = stack.enter_context(connected(guarded))
                connection.sendall(head + length + b"\r\n\r\n")
                answer = answer_to(connection)
                assert answer.split()[1] in (b"401", b"404", b"403", b"200")
                assert b"connection: close" in answer
                connection.send(b"1")
        started = time.monotonic()
        while process.num_fds() > before:
            assert time.monotonic() - started < 6, "the server keeps its side open"
            time.sleep(0.1)


def test_an_early_answer_reaches_a_client_that_still_sends(guarded: RunningServer):
    body = json.dumps({**TEXT, "q": "x" * 200_000}).encode()
    headers = {"authorization": "Bearer three"}
    for _ in range(20):
        assert guarded.ask("/translate", body, headers=headers)[0] == 403


@pytest.mark.parametrize(
    ("first", "piece"),
    [
        (b"", b"\r\n"),
        (b"GET /health HTTP/1.1\r\nX: ", b"a"),
        (b"GET /", b"a"),
        (HEAD + b"Content-Length: 1000\r\n\r\n", b" "),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        (HEALTH, b"\r\n"),
        (HEALTH, b"G"),
        (HEALTH + b"GET /", b"a"),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
         b"a"),
    ],
)  # fmt: skip
def test_no_byte_renews_the_time_of_a_client(hasty: RunningServer, first: bytes, piece: bytes):
    with connected(hasty) as connection:
        connection.sendall(first)
        assert seconds_until_closed(connection, piece) < 2 * CLIENT_SECONDS + 3


def test_a_request_that_is_too_slow_is_told_so(hasty: RunningServer):
    for first in (b"GET / HTTP/1.1\r\n", HEAD + b"Content-Length: 9\r\n\r\n{"):
        with connected(hasty) as connection:
            connection.sendall(first)
            assert answer_to(connection).startswith(b"HTTP/1.1 408 ")


def test_a_connection_that_is_used_stays_open(hasty: RunningServer):
    with connected(hasty) as connection:
        for _ in range(5):
            time.sleep(0.6 * CLIENT_SECONDS)
            connection.sendall(HEALTH)
            assert b"HTTP/1.1 200 " in answer_to(connection)


def test_an_answer_that_is_not_read_is_given_up(hasty: RunningServer):
    text = "🦜" * 20_000
    body = json.dumps({"q": text, "source": "zh", "target": "zh", "alternatives": 4}).encode()
    request = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with connected(hasty) as connection:
        connection.setblocking(False)
        started = time.monotonic()
        waiting = b""
        with pytest.raises(ConnectionError):  # noqa: PT012
            while time.monotonic() - started < 20:
                waiting = waiting or request
                with suppress(BlockingIOError):
                    waiting = waiting[connection.send(waiting) :]
                    continue
                time.sleep(0.05)


def test_a_thousand_silent_clients_do_not_shut_out_others(guarded: RunningServer, many_files: None):
    starts = (b"", b"GET / HTTP/1.1\r\nX: ", HEAD + b"Content-Length: 9\r\n\r\n{")
    with ExitStack() as stack:
        for number in range(1050):
            connection = stack.enter_context(connected(guarded))
            connection.sendall(starts[number % len(starts)])
        for _ in range(5):
            assert guarded.ask("/translate", {**TEXT, "api_key": "one"})[0] == 200


def test_the_address_with_most_connections_loses_one_first(hasty: RunningServer):
    with ExitStack() as stack:
        mine = stack.enter_context(connected(hasty))
        mine.sendall(HEALTH)
        assert answer_to(mine).startswith(b"HTTP/1.1 200 ")
        crowd = [stack.enter_context(connected(hasty, "127.0.0.2")) for _ in range(40)]
        others = [stack.enter_context(connected(hasty, "127.0.0.3")) for _ in range(12)]
        assert hasty.ask("/health")[0] == 200
        assert is_open(mine)
        n_crowd, n_others = (sum(map(is_open, each)) for each in (crowd, others))
        assert n_crowd + n_others <= MAX_CONNECTIONS
        assert n_crowd <= MAX_PER_ADDRESS
        assert min(n_crowd, n_others) >= 9


def test_requests_in_a_row_are_not_kept_without_end(hasty: RunningServer):
    with connected(hasty) as connection:
        found = b""
        with suppress(ConnectionError):
            connection.sendall(HEALTH * 2000)
            while piece := connection.recv(65536):
                found += piece
        assert found.count(b"HTTP/1.1 200") < 40
    with connected(hasty) as connection:
        connection.sendall(HEALTH * 5)
        found = b""
        while found.count(b"HTTP/1.1 200") < 5:
            found += connection.recv(65536)


def test_a_host_is_named_once_and_without_a_user(guarded: RunningServer):
    for head in (
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: other.example\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: other.example@localhost\r\n\r\n",
        b"GET http://other.example/health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ):
        with connected(guarded) as connection:
            connection.sendall(head)
            assert answer_to(connection).split()[1] in (b"400", b"403")


def test_no_client_removes_the_files_of_others(guarded: RunningServer):
    def store(key: str) -> str:
        fields = {"source": "zh", "target": "zh", "api_key": key}
        parts = [
            f'--B\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
            for name, value in fields.items()
        ]
        file = '--B\r\nContent-Disposition: form-data; name="file"; filename="你好.txt"\r\n\r\n'
        body = "".join([*parts, file, key, "\r\n--B--\r\n"]).encode()
        headers = {"content-type": "multipart/form-data; boundary=B"}
        status, answer = guarded.ask("/translate_file", body, headers=headers)
        assert status == 200
        return answer["translatedFileUrl"].removeprefix(guarded.url)

    mine = store("two")
    for _ in range(300):
        store("one")
    assert guarded.ask(mine) == (200, "two")


@pytest.mark.parametrize("keys", [pytest.param("", marks=pytest.mark.slow), " , "])
def test_a_list_without_keys_is_an_error_and_no_open_server(models: Path, keys: str):
    environment = {**os.environ, "CLEARHEAD_API_KEYS": keys}
    command = [sys.executable, "-m", "clearhead", "serve", models / "random-de-zh", "--port", "0"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert run.returncode == 2
    assert "holds no key" in run.stderr and "unset it" in run.stderr


@pytest.mark.slow
def test_a_long_request_does_not_keep_single_sentences_waiting(models: Path):
    def seconds(n: int) -> list[float]:
        found = []
        for _ in range(n):
            started = time.monotonic()
            assert server.ask("/translate", {"q": "I like tea.", **languages})[0] == 200
            found.append(time.monotonic() - started)
        return sorted(found)

    languages = {"source": "en", "target": "zh"}
    body = json.dumps({"q": "a" * 20_000, **languages}).encode()
    with RunningServer("tatoeba-en-zh", cache=models / "cache") as server:
        server.wait_for("ready")
        alone = seconds(30)
        with connected(server) as long:
            long.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            time.sleep(1)
            beside = seconds(30)
            long.setblocking(False)
            with pytest.raises(BlockingIOError):  # it takes about a minute
                long.recv(1)
    # About twice as long, where both share a processor; in one queue, hundreds of times.
    assert beside[-3] < 6 * alone[-3]
