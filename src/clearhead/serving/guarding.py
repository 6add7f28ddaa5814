"""What every request passes: who may ask, how its answer is counted and logged, and what a client
gets when something fails."""

import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clearhead.serving.answers import refusal
from clearhead.serving.limits import RequestError
from clearhead.serving.logs import LOGGER
from clearhead.serving.metrics import Metrics

LOOPBACK = ("127.", "localhost", "::1")
HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
_log = logging.getLogger(LOGGER)


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach it."""
    return host.strip("[]").startswith(LOOPBACK)


def digest(key: str) -> str:
    """What is kept of a key."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


class ApiKeys:
    """The keys of clients; without any, everybody may ask."""

    def __init__(self, digests: Iterable[str]) -> None:
        self.digests = tuple(digests)

    def authorise(self, request: Request, key: str | None) -> None:
        """Raises unless the key, or that of the header `Authorization`, is known."""
        if not self.digests:
            return
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        given = bearer.strip() if scheme.lower() == "bearer" else key
        if given is None:
            raise RequestError(
                401, "an API key is needed; send api_key, or Authorization: Bearer KEY"
            )
        own = digest(given)
        # Every comparison is made, so that the time says nothing.
        if not sum(hmac.compare_digest(own, known) for known in self.digests):
            raise RequestError(403, "the API key is not valid")


class Guard:
    """Pages of other sites are refused, and on this machine's own address other names of it: a
    browser sends Origin and Host. Answers are counted and logged, failures too."""

    def __init__(
        self, app: ASGIApp, *, host: str, origins: tuple[str, ...], metrics: Metrics
    ) -> None:
        self.app, self.origins, self.metrics = app, origins, metrics
        self.host = host.strip("[]").lower()
        self.only_loopback = is_loopback(host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        number = secrets.token_hex(8)
        status = 0

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = number
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            reason = self._reason(Headers(scope=scope))
            if reason is not None:
                await refusal(scope["path"], 403, reason)(scope, receive, counted)
            else:
                await self.app(scope, receive, counted)
        except Exception:
            _log.exception("a request failed", extra={"fields": {"request": number}})
            if status == 0:
                answer = refusal(scope["path"], 500, f"the server failed (request {number})")
                await answer(scope, receive, counted)
        finally:
            seconds = time.perf_counter() - started
            route = getattr(scope.get("endpoint"), "__name__", "none")
            self.metrics.request(route, status, seconds)
            if _log.isEnabledFor(logging.INFO):
                fields = {
                    "request": number, "method": scope["method"], "route": route, "status": status,
                    "ms": round(1000 * seconds, 2),
                }  # fmt: skip
                _log.info("request", extra={"fields": fields})

    def _reason(self, headers: Headers) -> str | None:
        host = headers.get("host", "")
        name = (urlsplit(f"//{host}").hostname or "") if _is_plain(host) else ""
        if self.only_loopback and not (is_loopback(name) or name == self.host):
            return "this server answers to the names of its own machine only"
        origin = headers.get("origin")
        if origin is None or "*" in self.origins or origin in self.origins:
            return None
        if _is_plain(origin) and urlsplit(origin).netloc.lower() == host.lower() != "":
            return None
        return "pages of other sites may not use this server; start it with --allow-origin"


def _is_plain(text: str) -> bool:
    """What `urlsplit` cannot fail on."""
    return len(text) < 300 and "[" not in text.replace("[::1]", "")
