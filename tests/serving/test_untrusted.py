"""What clients send that they should not: it is refused or answered, and the server goes on."""

import json
import socket
import time
from typing import Any

import pytest

from tests.serving.process import RunningServer

GOOD = {"q": "clearhead", "source": "en", "target": "eo"}


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b"\xff\xfe{}", 400),
        (b"[" * 100_000, 400),
        (b'{"q": ' + b"9" * 5000 + b"}", 400),
        ({}, 400),
        ({**GOOD, "q": None}, 400),
        ({**GOOD, "q": 5}, 400),
        ({**GOOD, "q": ["a", 5]}, 400),
        ({**GOOD, "q": {"a": "b"}}, 400),
        ({**GOOD, "q": []}, 200),
        ({**GOOD, "q": ["a"] * 257}, 400),
        ({**GOOD, "q": "a" * 20_001}, 413),
        ({**GOOD, "q": "a" * 10_000}, 200),
        ({**GOOD, "q": "\x00\x01\x1b[2J\u202e\ufffe" * 9}, 200),
        ({**GOOD, "q": "\ud800"}, 400),
        ({**GOOD, "q": "\n" * 9999}, 200),
        ({**GOOD, "q": "a.\n" * 3000}, 200),
        ({**GOOD, "target": "tlh"}, 400),
        ({**GOOD, "target": "x" * 10_000}, 400),
        ({**GOOD, "target": "en"}, 200),
        ({**GOOD, "target": "de"}, 400),
        ({**GOOD, "source": ["en"]}, 400),
        ({**GOOD, "format": "docx"}, 400),
        ({**GOOD, "alternatives": -1}, 400),
        ({**GOOD, "alternatives": 1e99}, 400),
        ({**GOOD, "alternatives": True}, 400),
        ({**GOOD, "format": "html", "q": "<" * 9000 + "!--" * 3000}, 200),
        ({**GOOD, "format": "html", "q": "<b>" * 5000}, 200),
        ({**GOOD, "format": "html", "q": "&#xFFFFFFFF;&#0;<!DOCTYPE <![CDATA[ <?x"}, 200),
        ({**GOOD, "format": "html", "q": f"&#{'1' * 5000};"}, 200),
        ({**GOOD, "format": "html", "q": f"<p title='&#{'1' * 5000};'>a</p>"}, 200),
    ],
    ids=range(33),
)  # fmt: skip
def test_a_body_is_refused_or_answered(server: RunningServer, content: Any, status: int):
    found, answer = server.ask("/translate", content)
    assert found == status
    assert ("translatedText" in answer) == (status == 200)
    if status != 200:
        assert isinstance(answer["error"], str) and len(answer["error"]) < 300


def test_tags_stay_and_their_text_is_translated(server: RunningServer):
    page = '<p class="x">abcd <b id=1>efgh</b> ijkl</p><!-- no --><code>mnop</code> &lt;qrst&gt;'
    status, found = server.ask("/translate", {**GOOD, "q": page, "format": "html"})
    assert status == 200
    text = found["translatedText"]
    for tag in ('<p class="x">', "<b id=1>", "</b>", "</p>", "<!-- no -->", "<code>mnop</code>"):
        assert tag in text
    assert "<qrst" not in text
    plain = {**GOOD, "q": "<p>abcd</p>", "format": "html"}
    assert server.ask("/translate", plain)[1]["translatedText"] == "<p>abcd</p>"


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/translate", {"host": "evil.example"}, 403),
        ("/translate", {"host": "127.0.0.1.evil.example"}, 403),
        ("/translate", {"host": "localhost.evil.example"}, 403),
        ("/translate", {"origin": "https://evil.example"}, 403),
        ("/translate", {"origin": "null"}, 403),
        ("/v1/completions", {"origin": "https://evil.example"}, 403),
        ("/nothing", {}, 404),
        ("/v1/nothing", {}, 404),
        ("/languages", {}, 405),
        ("/suggest", {}, 403),
    ],
)
def test_other_pages_names_and_addresses_are_refused(server: RunningServer, path, headers, status):
    found, answer = server.ask(path, GOOD, headers=headers)
    assert found == status and answer["error"]
    assert server.ask("/translate", GOOD) == (200, {"translatedText": "clearhead"})


@pytest.mark.parametrize(
    ("path", "fields", "reason"),
    [
        ("/translate", {**GOOD, "formt": "html"}, "no field 'formt'; did you mean 'format'?"),
        ("/translat", GOOD, "there is no such address; did you mean POST /translate?"),
        ("/v1/completion", GOOD, "did you mean POST /v1/completions?"),
        ("/v1/chat/completions", GOOD, "there are no chats, as the models have not learnt any"),
        ("/languages", GOOD, "/languages does not take POST; send the request with GET"),
    ],
)
def test_a_mistyped_request_is_told_what_is_nearest(server: RunningServer, path, fields, reason):
    _, answer = server.ask(path, fields)
    error = answer["error"]
    assert reason in (error["message"] if isinstance(error, dict) else error)
    assert server.ask("/translate", {**GOOD, "client": "mine"})[0] == 200


def raw(server: RunningServer, data: bytes, seconds: float = 5) -> bytes:
    """All that comes back until the server closes, or for so long."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=seconds) as connection:
        found = b""
        try:
            connection.sendall(data)
            while piece := connection.recv(65536):
                found += piece
        except (TimeoutError, ConnectionError):
            pass
        return found


def test_bytes_that_are_not_http_are_refused(server: RunningServer):
    head = b"POST /translate HTTP/1.1\r\nHost: localhost\r\n"
    assert raw(server, b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n").startswith(b"HTTP/1.1 400")
    huge = raw(server, head + b"Content-Length: 1000000000\r\n\r\n{")
    assert huge.startswith(b"HTTP/1.1 413") and b"connection: close" in huge.lower()
    endless = head + b"Transfer-Encoding: chunked\r\n\r\n"
    found = raw(server, endless + 9 * (b"10000\r\n" + b"a" * 65536 + b"\r\n"))
    assert found == b"" or found.startswith(b"HTTP/1.1 413")  # or closed, with bytes unread
    many = raw(server, head + b"".join(b"X-%d: %s\r\n" % (i, b"a" * 900) for i in range(99)))
    assert many.startswith(b"HTTP/1.1 400")
    assert server.ask("/translate", GOOD)[0] == 200


def test_clients_that_leave_are_forgotten(server: RunningServer):
    body = json.dumps({**GOOD, "q": "abc. " * 2000}).encode()
    head = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
    for _ in range(5):
        connection = socket.create_connection(("127.0.0.1", server.port))
        connection.sendall(head + body)
        time.sleep(0.02)
        connection.close()
    started = time.monotonic()
    assert server.ask("/translate", GOOD)[0] == 200
    assert time.monotonic() - started < 5
    for _ in range(100):
        text = server.ask("/metrics")[1]
        if 'waiting_tokens{model="en-eo"} 0.0' in text and "clients_left_total 5.0" in text:
            return
        time.sleep(0.1)
    raise AssertionError(text)
