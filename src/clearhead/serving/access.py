"""Decides who may use a server, counts and logs its answers, and answers the client if something
fails.

A page of another site must not reach a server of this machine: not by a form or a script (Origin),
and not by a name that its owner lets point to 127.0.0.1 (Host). The live page has a key too. It is
behind the `#` of the printed address, which browsers do not send, so it is in no log.
"""

import hashlib
import hmac
import ipaddress
import logging
import secrets
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clearhead.serving.answers import refusal
from clearhead.serving.logs import LOGGER
from clearhead.serving.metrics import Metrics
from clearhead.serving.refusals import RequestError

PAGE_KEY = "x-clearhead-key"
HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
PAGE_HEADERS = HEADERS | {
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
}
_log = logging.getLogger(LOGGER)


def is_loopback(host: str) -> bool:
    """Tell whether only programs on this machine can reach an address. A name that merely begins
    like an address of this machine, such as 127.0.0.1.example.org, may belong to anybody."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def digest(key: str) -> str:
    """Return the hash of a key, which is stored instead of the key."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def key_in_head(request: Request) -> str | None:
    """Return the key that a client of LibreTranslate's API sends outside the body."""
    bearer = _bearer(request)
    return request.query_params.get("api_key") if bearer is None else bearer


def _bearer(request: Request) -> str | None:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None


class ApiKeys:
    """The keys of clients. If there are none, every request is answered."""

    def __init__(self, digests: Iterable[str]) -> None:
        self.digests = tuple(digests)

    def authorise(self, request: Request, key: str | None) -> str:
        """Return the caller: the digest of a key, or an address if no key is needed. Raises unless
        the key, or that of the header `Authorization`, is known."""
        if not self.digests:
            return request.client.host if request.client is not None else ""
        bearer = _bearer(request)
        sent = key if bearer is None else bearer
        if sent is None:
            raise RequestError(
                401, "an API key is needed; send api_key, or Authorization: Bearer KEY"
            )
        own = digest(sent)
        # Every comparison is made, so that the time shows nothing.
        if not sum(hmac.compare_digest(own, stored) for stored in self.digests):
            openai = request.url.path.startswith("/v1/")  # whose clients only understand 401 here
            raise RequestError(401 if openai else 403, "the API key is not valid")
        return own


class Callers(NamedTuple):
    """Decides whose requests are answered, by two headers that browsers send: `Host`, the name by
    which the server was called, and `Origin`, the site of the page that sends the request."""

    host: str
    """The address on which the server listens."""
    any_name: bool = False
    """True if the server may be called by any name, as behind a proxy."""
    origins: tuple[str, ...] = ()
    """Sites whose pages may send requests, besides the server's own pages."""
    option: str = ""
    """The option with which the server can be started to allow another site, if it has one."""

    def reason_to_refuse(self, headers: Headers) -> str | None:
        """Return the reason to refuse a request; None: it is answered."""
        host, *others = headers.getlist("host") or [""]
        if others:
            return "there is more than one Host"
        name = _name(host)
        if not (self.any_name or is_loopback(name) or name == self.host.strip("[]").lower()):
            return "this server answers to the names of its own machine only"
        origin = headers.get("origin")
        if origin is None or "*" in self.origins or origin.lower() in self.origins:
            return None
        # The server's own port may differ, because of a tunnel or a proxy.
        if name and origin.lower() in (f"http://{host.lower()}", f"https://{host.lower()}"):
            return None
        site = repr(origin[:100])[1:-1]
        remedy = f"; start the server with {self.option} {site}" if self.option else ""
        return f"pages of {site} may not use this server{remedy}"


def _name(host: str) -> str:
    """Return the name in `name:port`; empty if there is none."""
    try:
        return urlsplit(f"//{host}").hostname or "" if "@" not in host else ""
    except ValueError:
        return ""


class Guard:
    """Answers only requests of `callers`. All answers, failures too, are counted and logged."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        callers: Callers,
        headers: Mapping[str, str] = HEADERS,
        metrics: Metrics | None = None,
    ) -> None:
        """`headers` are added to every answer that does not set them itself."""
        self.app, self.callers, self.headers, self.metrics = app, callers, headers, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        number = secrets.token_hex(8)
        status = 0
        sent = Headers(scope=scope)
        has_arrived = sent.get("content-length", "0") == "0" and "transfer-encoding" not in sent

        async def received() -> Message:
            nonlocal has_arrived
            message = await receive()
            has_arrived = has_arrived or not message.get("more_body")
            return message

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = number
                if not has_arrived:  # the rest of the body is not read
                    headers["connection"] = "close"
                for name, value in self.headers.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            reason = self.callers.reason_to_refuse(sent)
            if reason is not None:
                await refusal(scope["path"], 403, reason)(scope, received, counted)
            else:
                await self.app(scope, received, counted)
        except Exception:
            _log.exception("a request failed", extra={"fields": {"request": number}})
            if status == 0:
                answer = refusal(scope["path"], 500, f"the server failed (request {number})")
                await answer(scope, received, counted)
        finally:
            seconds = time.perf_counter() - started
            route = getattr(scope.get("endpoint"), "__name__", "none")
            if self.metrics is not None:
                self.metrics.request(route, status, seconds)
            if _log.isEnabledFor(logging.INFO):
                fields = {
                    "request": number, "method": scope["method"], "route": route, "status": status,
                    "ms": round(1000 * seconds, 2),
                }  # fmt: skip
                _log.info("request", extra={"fields": fields})


def check_page_key(headers: Headers, key: str) -> None:
    """Raises unless the request comes from a page that knows the key. A form of another site can
    send neither JSON nor this header."""
    if headers.get("content-type", "").split(";")[0].strip() != "application/json":
        raise RequestError(415, "send application/json")
    if not hmac.compare_digest(headers.get(PAGE_KEY, "").encode(), key.encode()):
        raise RequestError(403, "the key is missing or wrong; open the printed address")
