"""A server as users start it: a process of its own, on a free port."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.signals import listen_to_ctrl_c


class RunningServer:
    """`clearhead serve …` until it is stopped. Its log is read in a thread."""

    def __init__(
        self,
        *arguments: object,
        cache: Path,
        keys: str | None = None,
        checkout: Path | None = None,
    ) -> None:
        """`checkout`: another one of the repository, whose code it runs."""
        environment = {**os.environ, "CLEARHEAD_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
        environment.pop("CLEARHEAD_API_KEYS", None)
        if keys is not None:
            environment["CLEARHEAD_API_KEYS"] = keys
        if checkout is not None:
            environment["PYTHONPATH"] = str(checkout / "src")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "clearhead", "serve", *map(str, arguments), "--port", "0"],
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            preexec_fn=listen_to_ctrl_c,
        )
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        self.url = str(self.wait_for("listening on")["url"])
        self.port = int(self.url.rsplit(":", 1)[1])

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._changed:
                self.lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def records(self, message: str) -> list[dict[str, Any]]:
        """What it has logged so far."""
        found = [json.loads(line) for line in self.lines if line.startswith("{")]
        return [record for record in found if record["message"].startswith(message)]

    def wait_for(self, message: str, n: int = 1, seconds: float = 90) -> dict[str, Any]:
        """The n-th record of this message."""
        end = time.monotonic() + seconds
        with self._changed:
            while len(found := self.records(message)) < n:
                left = end - time.monotonic()
                assert left > 0 and self.process.poll() is None, "".join(self.lines[-20:])
                self._changed.wait(min(left, 1))
        return found[n - 1]

    def ask(
        self, path: str, content: Any = None, *, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """Status and JSON of the answer. Bytes are sent as they are, other content as JSON."""
        raw = isinstance(content, bytes)
        body = content if raw or content is None else json.dumps(content).encode()
        given = {} if body is None else {"content-type": "application/json"}
        request = urllib.request.Request(self.url + path, body, {**given, **(headers or {})})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text[:1] in b"{[" else text.decode()
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Its exit status."""
        self.process.send_signal(number)
        status = self.process.wait(60)
        self._reading.join(10)
        return status

    def __enter__(self) -> "RunningServer":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
        assert self.process.stderr is not None
        self._reading.join(10)
        self.process.stderr.close()
