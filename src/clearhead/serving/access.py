"""Who may talk to a server on this machine.

A page of another site must not reach it: not by a form or a script (Origin, content type and key),
and not by a name that its owner lets point to 127.0.0.1 (Host). The key is behind the `#` of the
printed address, which browsers do not send, so it is in no log.
"""

import hmac
import json

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

KEY = "x-clearhead-key"
HEADERS = {
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class OwnPageOnly:
    """Refuses what does not come from the page that this server has sent."""

    def __init__(self, app: ASGIApp, *, hosts: frozenset[str], key: str) -> None:
        """`hosts`: the names that this server has, each with its port."""
        self.app, self.hosts, self.key = app, hosts, key
        self.origins = {f"http://{host}" for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # the server's own messages; sockets have no route
            await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refusal = self._refusal(scope["method"], Headers(scope=scope))
        await (refusal or self.app)(scope, receive, with_headers)

    def _refusal(self, method: str, headers: Headers) -> Response | None:
        if headers.get("host", "").lower() not in self.hosts:
            return failure(403, "this server answers to its own address only")
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in self.origins:
            return failure(403, "this server answers to its own page only")
        if method == "POST":
            if headers.get("content-type", "").split(";")[0].strip() != "application/json":
                return failure(415, "send application/json")
            if not hmac.compare_digest(headers.get(KEY, "").encode(), self.key.encode()):
                return failure(403, "the key is missing or wrong; open the printed address")
        return None


def failure(status: int, message: str) -> Response:
    """An error, in the form in which the page reads it."""
    body = json.dumps({"error": message}, ensure_ascii=False)
    return Response(body, status, media_type="application/json")
