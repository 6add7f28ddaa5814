"""Clients for the measurements of the server: as little processor time as Python allows."""

import asyncio
import statistics
import time
from collections.abc import Sequence
from itertools import count

Answer = tuple[int, float]
"""Status (0: no answer) and seconds."""


class Client:
    """One connection, which asks again and again."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.writer: asyncio.StreamWriter | None = None

    async def ask(self, body: bytes, path: bytes = b"/translate") -> tuple[int, bytes]:
        """Status and body. Raises OSError if the connection ends before the answer does."""
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" % path
        self.writer.write(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        try:
            answer = await self.reader.readuntil(b"\r\n\r\n")
            fields = answer.lower().split(b"\r\n")
            length = next(f for f in fields if f.startswith(b"content-length:"))
            content = await self.reader.readexactly(int(length.split(b":")[1]))
        except (asyncio.IncompleteReadError, OSError):
            self.close()
            raise ConnectionError("no answer") from None
        if b"connection: close" in fields:
            self.close()
        return int(answer.split(b" ", 2)[1]), content

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None


async def load(
    port: int,
    bodies: Sequence[bytes],
    n_clients: int,
    seconds: float,
    *,
    n_requests: int | None = None,
    reconnect: int | None = None,
) -> list[Answer]:
    """What clients got that ask one after another, for so long or so many times."""
    found: list[Answer] = []
    number = count()
    end = time.perf_counter() + seconds

    async def run() -> None:
        client = Client(port)
        while time.perf_counter() < end:
            own = next(number)
            if n_requests is not None and own >= n_requests:
                break
            started = time.perf_counter()
            try:
                status, _ = await client.ask(bodies[own % len(bodies)])
            except OSError:
                status = 0
            found.append((status, time.perf_counter() - started))
            if reconnect is not None and own % reconnect == 0:
                client.close()
        client.close()

    await asyncio.gather(*(run() for _ in range(n_clients)))
    return found


def latencies(found: Sequence[Answer]) -> list[float]:
    """In milliseconds. Every answer must have been a good one."""
    wrong = [status for status, _ in found if status != 200]
    assert not wrong, f"{len(wrong)} of {len(found)} answers were not 200: {set(wrong)}"
    return [1000 * seconds for _, seconds in found]


def percentiles(values: Sequence[float]) -> dict[str, float]:
    several = values if len(values) > 1 else [*values, *values]  # a long text may fill the time
    cuts = statistics.quantiles(several, n=100, method="inclusive")
    return {f"p{p}_ms": round(cuts[p - 1], 1) for p in (50, 95, 99)}
