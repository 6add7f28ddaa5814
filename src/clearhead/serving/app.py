"""The live page: the microscope's page, and one place that it asks.

GET  /           the page, with a first document in it
POST /api/look   a LookRequest → a document (`inspection/look.py`), or {"error": …}
GET  /health     whether the server answers
"""

import asyncio
import json
import secrets
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from clearhead.errors import ClearheadError
from clearhead.inspection.page import page, policy
from clearhead.serving.access import OwnPageOnly, failure
from clearhead.serving.asking import MAX_BODY, LookRequest, read_request
from clearhead.serving.live import MAX_SECONDS, LiveModel, RequestTimeoutError
from clearhead.serving.ports import take_port

MAX_WAITING = 4  # requests beside the one that is answered
MAX_ANSWER = 4_000_000  # bytes
MAX_CONNECTIONS = 64


class Address(NamedTuple):
    """Where a server listens, and the key to it."""

    listening: socket.socket
    key: str

    @property
    def hosts(self) -> frozenset[str]:
        """The names that a browser may call it by."""
        host, port = self.listening.getsockname()[:2]
        names = {host, "127.0.0.1", "localhost"} if host.startswith("127.") else {host}
        return frozenset(f"{name}:{port}" for name in names)

    @property
    def url(self) -> str:
        """What is typed into a browser."""
        host, port = self.listening.getsockname()[:2]
        return f"http://{host}:{port}/#key={self.key}"


def listen(host: str, port: int) -> Address:
    """Takes a port of this machine; 0: one that is free."""
    if host in ("", "0.0.0.0", "::"):
        raise ClearheadError(
            f"--host {host!r} names no address that a browser could be given; "
            "give the one that others see of this machine"
        )
    return Address(take_port(host, port), secrets.token_urlsafe(16))


def serve(live: LiveModel, first: LookRequest, address: Address) -> None:
    """Answers until the process is interrupted."""
    config = uvicorn.Config(
        live_app(live, first, hosts=address.hosts, key=address.key),
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=2,
    )
    uvicorn.Server(config).run(sockets=[address.listening])


def live_app(live: LiveModel, first: LookRequest, *, hosts: frozenset[str], key: str) -> Starlette:
    """The application; `first` is what the page shows when it opens."""
    worker = ThreadPoolExecutor(1, thread_name_prefix="model")
    opening = worker.submit(live.answer, first).result()
    opening["live"] = {**live.facts(), "first": {**first.decoding(), "text": first.text}}
    html = page(opening)
    held = {"content-security-policy": f"{policy(live=True)}; frame-ancestors 'none'"}
    n_asked = 0

    async def home(_: Request) -> Response:
        return HTMLResponse(html, headers=held)

    async def health(_: Request) -> Response:
        return PlainTextResponse("ready\n")

    async def look(request: Request) -> Response:
        nonlocal n_asked
        try:
            asked = read_request(await _body(request))
        except ClientDisconnect:
            return failure(400, "the request was not finished")
        except ClearheadError as error:
            return failure(413 if isinstance(error, _BodyTooLargeError) else 400, str(error))
        if n_asked > MAX_WAITING:
            return failure(503, "too many requests at once; try again in a moment")
        n_asked += 1
        left = threading.Event()
        watching = asyncio.ensure_future(_when_left(request, left))
        try:
            answering = asyncio.get_running_loop().run_in_executor(worker, _answer, asked, left)
            return await answering
        finally:
            watching.cancel()
            n_asked -= 1

    def _answer(asked: LookRequest, left: threading.Event) -> Response:
        try:
            body = json.dumps(live.answer(asked, left), ensure_ascii=False, separators=(",", ":"))
        except RequestTimeoutError as error:
            return failure(504, str(error))
        except ClearheadError as error:
            return failure(400, str(error))
        data = body.encode()
        if len(data) > MAX_ANSWER:
            return failure(400, "the answer is too large for the live page; shorten the text")
        return Response(data, media_type="application/json")

    return Starlette(
        routes=[
            Route("/", home),
            Route("/health", health),
            Route("/api/look", look, methods=["POST"]),
        ],
        middleware=[Middleware(OwnPageOnly, hosts=hosts, key=key)],
    )


class _BodyTooLargeError(ClearheadError):
    """A body beyond the limit."""


async def _body(request: Request) -> bytes:
    found = bytearray()
    try:
        async with asyncio.timeout(MAX_SECONDS):
            async for piece in request.stream():
                found += piece
                if len(found) > MAX_BODY:
                    raise _BodyTooLargeError(
                        f"the body has more than {MAX_BODY} bytes; shorten the text"
                    )
    except TimeoutError:
        raise ClientDisconnect from None
    return bytes(found)


async def _when_left(request: Request, left: threading.Event) -> None:
    while not await request.is_disconnected():
        await asyncio.sleep(0.2)
    left.set()
