"""`clearhead play` as a process of its own."""

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

import clearhead as ch
from clearhead.cli import main
from clearhead.inspection.decode_for_page import subject_of
from clearhead.inspection.switches import see_without
from tests.signals import listen_to_ctrl_c

pytest.importorskip("uvicorn")


@pytest.fixture
def playing() -> Iterator[tuple[subprocess.Popen, str, str]]:
    command = [sys.executable, "-m", "clearhead", "play", "copy-task"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, preexec_fn=listen_to_ctrl_c
    ) as process:
        assert process.stdout is not None
        found = re.search(r"(http://127\.0\.0\.1:\d+/)#key=(\S+)", process.stdout.readline())
        assert found is not None
        yield process, found[1], found[2]
        process.kill()


def asked(address: str, key: str, body: dict) -> dict:
    headers = {"content-type": "application/json", "x-clearhead-key": key}
    data = json.dumps(body).encode()
    request = urllib.request.Request(f"{address}api/look", data, headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


@pytest.mark.slow
def test_a_process_serves_the_page_answers_and_ends_with_ctrl_c(playing):
    process, address, key = playing
    with urllib.request.urlopen(address, timeout=60) as answer:
        assert "copy-task · clearhead play" in answer.read().decode()
    off = ["decoder.layers.0.around_cross_attention.added"]
    found = asked(address, key, {"text": "k3v9xq2m", "off": off})
    expected = see_without(subject_of(ch.load("copy-task").opened, "copy-task"), "k3v9xq2m", off)
    assert found["text"] == expected["text"] != "k3v9xq2m"
    assert found["effect"]["text"] == "k3v9xq2m"
    with pytest.raises(urllib.error.HTTPError, match="403"):
        asked(address, "guessed", {"text": "k3v9xq2m"})
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0


@pytest.mark.slow
def test_silent_clients_do_not_shut_out_the_page(playing):
    _, address, _ = playing
    port = int(address.rstrip("/").rsplit(":", 1)[1])
    with urllib.request.urlopen(address, timeout=60), ExitStack() as stack:
        for number in range(80):
            connection = socket.create_connection(("127.0.0.1", port))
            stack.enter_context(connection).sendall(b"GET / HTTP/1.1\r\nX: "[: number % 2 * 99])
        with urllib.request.urlopen(address, timeout=60) as answer:
            assert answer.status == 200


def test_a_model_without_examples_needs_a_text(tmp_path, capsys):
    ch.load("copy-task").save(tmp_path / "mine")
    assert main(["play", str(tmp_path / "mine")]) == 2
    assert "give a text: clearhead play" in capsys.readouterr().err


def test_an_address_that_cannot_be_listened_on_is_refused(capsys):
    assert main(["play", "copy-task", "--port", "70000"]) == 2
    assert "--port 0 takes a free port" in capsys.readouterr().err
    assert main(["play", "copy-task", "--host", "0.0.0.0"]) == 2
    assert "is not an address" in capsys.readouterr().err
