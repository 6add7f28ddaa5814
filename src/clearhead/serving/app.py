"""The live page: the microscope's page, and the route that it calls.

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
from functools import partial
from typing import NamedTuple

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from clearhead.errors import ClearheadError, ConfigError
from clearhead.inspection.page import page, policy
from clearhead.serving.access import PAGE_HEADERS, Callers, Guard, check_page_key
from clearhead.serving.answers import refusal
from clearhead.serving.asking import MAX_BODY, LookRequest, read_request
from clearhead.serving.connections import ConnectionLimits, bounded_connections
from clearhead.serving.live import MAX_SECONDS, LiveModel, RequestTimeoutError
from clearhead.serving.ports import take_port
from clearhead.serving.refusals import RequestError, status_of

LOOK = "/api/look"
failure = partial(refusal, LOOK)
MAX_WAITING = 4  # number of requests that may wait, besides the one that is being answered
MAX_ANSWER = 4_000_000  # bytes
MAX_CONNECTIONS = 64


class Address(NamedTuple):
    """The address on which a server listens, and the key to it."""

    listening: socket.socket
    key: str

    @property
    def host(self) -> str:
        """The address of this machine on which the server listens."""
        return self.listening.getsockname()[0]

    @property
    def url(self) -> str:
        """The address to type into a browser."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.listening.getsockname()[1]}/#key={self.key}"


def listen(host: str, port: int) -> Address:
    """Take a port of this machine; 0 takes a free port."""
    if host in ("", "0.0.0.0", "::"):
        rule = "is not an address that a browser can open"
        remedy = "give the address under which others reach this machine"
        raise ConfigError("host", host, rule, remedy)
    return Address(take_port(host, port), secrets.token_urlsafe(16))


def serve(live: LiveModel, first: LookRequest, address: Address) -> None:
    """Answer requests until the process is interrupted."""
    config = uvicorn.Config(
        live_app(live, first, host=address.host, key=address.key),
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        http=bounded_connections(ConnectionLimits(MAX_CONNECTIONS, MAX_CONNECTIONS, MAX_SECONDS)),
        timeout_graceful_shutdown=2,
    )
    uvicorn.Server(config).run(sockets=[address.listening])


def live_app(live: LiveModel, first: LookRequest, *, host: str, key: str) -> Starlette:
    """Make the application. `first` is what the page shows when it opens; `host` is the address on
    which the server listens."""
    live_page = _LivePage(live, first, key)
    return Starlette(
        routes=[
            Route("/", live_page.home),
            Route("/health", live_page.health),
            Route(LOOK, live_page.look, methods=["POST"]),
        ],
        middleware=[Middleware(Guard, callers=Callers(host), headers=PAGE_HEADERS)],
    )


class _LivePage:
    """The page, and the requests that it sends: one thread answers them in turn."""

    def __init__(self, live: LiveModel, first: LookRequest, key: str) -> None:
        self.live, self.key, self.n_asked = live, key, 0
        self.worker = ThreadPoolExecutor(1, thread_name_prefix="model")
        opening = self.worker.submit(live.answer, first).result()
        opening["live"] = {**live.facts(), "first": {**first.decoding(), "text": first.text}}
        self.html = page(opening)
        policies = f"{policy(live=True)}; frame-ancestors 'none'"
        self.headers = {"content-security-policy": policies}

    async def home(self, _: Request) -> Response:
        """GET /"""
        return HTMLResponse(self.html, headers=self.headers)

    async def health(self, _: Request) -> Response:
        """GET /health"""
        return PlainTextResponse("ready\n")

    async def look(self, request: Request) -> Response:
        """POST /api/look"""
        try:
            check_page_key(request.headers, self.key)
            asked = read_request(await _body(request))
        except ClientDisconnect:
            return failure(400, "the request was not finished")
        except RequestError as error:
            return failure(error.status, str(error))
        except ClearheadError as error:
            return failure(400, str(error))
        if self.n_asked > MAX_WAITING:
            return failure(503, "too many requests at once; try again in a moment")
        self.n_asked += 1
        left = threading.Event()
        watching = asyncio.ensure_future(_when_left(request, left))
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self.worker, self._answer, asked, left)
        finally:
            watching.cancel()
            self.n_asked -= 1

    def _answer(self, asked: LookRequest, left: threading.Event) -> Response:
        try:
            document = self.live.answer(asked, left)
        except RequestTimeoutError as error:
            return failure(504, str(error))
        except ClearheadError as error:
            return failure(status_of(error), str(error))
        body = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
        if len(body) > MAX_ANSWER:
            return failure(400, "the answer is too large for the live page; shorten the text")
        return Response(body, media_type="application/json")


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_BODY:
            raise RequestError(413, f"the body has more than {MAX_BODY} bytes; shorten the text")
    return bytes(body)


async def _when_left(request: Request, left: threading.Event) -> None:
    while not await request.is_disconnected():
        await asyncio.sleep(0.2)
    left.set()
