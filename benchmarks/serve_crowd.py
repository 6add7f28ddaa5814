"""Clients that hold connections to a server and do nothing useful with them. One whose connection
the server has closed comes back after a second."""

import asyncio
from typing import Any

REQUEST = b" HTTP/1.1\r\nHost: localhost\r\n"
KINDS: dict[str, tuple[bytes, bytes]] = {
    "silent": (b"", b""),
    "drips a head": (b"GET /health" + REQUEST + b"X: ", b"a"),
    "drips a body": (b"POST /translate" + REQUEST + b"Content-Length: 9000\r\n\r\n", b" "),
    "goes on after its answer": (
        b"POST /nothing" + REQUEST + b"Content-Length: 9000\r\n\r\n", b" "
    ),
}  # fmt: skip
"""What each sends first, and then every second."""
PAUSE = 1.0


def crowd(port: int, n_clients: int, addresses: list[str], counts: Any) -> None:
    """Runs until the process ends. `counts`: how many are connected, and how many times one has
    come back."""
    asyncio.run(_crowd(port, n_clients, addresses, counts))


async def _crowd(port: int, n_clients: int, addresses: list[str], counts: Any) -> None:
    starts = list(KINDS.values())
    await asyncio.gather(
        *(
            _hold(port, addresses[number % len(addresses)], *starts[number % len(starts)], counts)
            for number in range(n_clients)
        )
    )


async def _hold(port: int, address: str, first: bytes, piece: bytes, counts: Any) -> None:
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
        except OSError:
            await asyncio.sleep(PAUSE)
            continue
        counts[0] += 1
        writer.write(first)
        while not writer.transport.is_closing():
            await asyncio.sleep(PAUSE)
            writer.write(piece)
        writer.close()
        counts[0] -= 1
        counts[1] += 1
        await asyncio.sleep(PAUSE)
