"""Limits the connections of clients that are slow, silent or gone. uvicorn reads and writes HTTP;
this file sets the limits on time, size and number that uvicorn lacks.

A client has a limited time from its connection to the end of its first request, and from the first
byte to the end of each further request; no byte extends it. A connection whose request is being
answered is working; every other connection waits for its client. If there are too many connections,
a new one replaces one that waits, so clients that do nothing cannot shut out others.
"""

import asyncio
import ipaddress
from collections import Counter
from functools import partial
from http import HTTPStatus
from typing import Any, Literal, NamedTuple, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD = 32_768  # bytes
MAX_HEADERS = 100
MAX_PIPELINED = 16
"""The highest number of requests of a connection that wait for the answer to an earlier one."""
READ_AT_ONCE = 2**18  # bytes; by asyncio
DRAIN_SECONDS = 2.0
"""The number of seconds for which a request is still read after an answer that did not wait for the
request's end. If the connection were closed while the client sends, the answer would be lost."""
MAX_DRAINED = 2**20  # bytes
MAX_REFUSED = 64
"""The highest number of connections that get an answer if there is no place for them; further
connections are closed at once."""


class ConnectionLimits(NamedTuple):
    """The limits on a worker's connections."""

    most: int
    most_of_an_address: int
    seconds: float
    """The seconds that a client has to send a request, to read its answer, and to ask again."""


class OpenConnections:
    """The connections of a worker, with the addresses from which they come."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.addresses: dict[BoundedConnection, str] = {}
        self.n_of_address: Counter[str] = Counter()
        self.waiting: dict[str, dict[BoundedConnection, None]] = {}
        """The waiting connections by address; the first has waited longest."""
        self.refused: set[BoundedConnection] = set()

    def enter(self, connection: "BoundedConnection", address: str) -> bool:
        """Tell whether there is a place for a connection. If there is none, the connection that has
        waited longest is closed: one from the same address if that address has too many, or else
        one from the address with the most waiting connections."""
        if self.n_of_address[address] >= self.limits.most_of_an_address:
            has_place = self._close_one_of(address)
        elif len(self.addresses) >= self.limits.most:
            has_place = bool(self.waiting) and self._close_one_of(
                max(self.waiting, key=lambda each: len(self.waiting[each]))
            )
        else:
            has_place = True
        if has_place:
            self.addresses[connection] = address
            self.n_of_address[address] += 1
        return has_place

    def _close_one_of(self, address: str) -> bool:
        if address not in self.waiting:
            return False
        longest = next(iter(self.waiting[address]))
        self.leave(longest)
        longest.abort()
        return True

    def leave(self, connection: "BoundedConnection") -> None:
        """Record that a connection has been closed."""
        self.refused.discard(connection)
        self.works(connection)
        address = self.addresses.pop(connection, None)
        if address is not None:
            self.n_of_address[address] -= 1
            if not self.n_of_address[address]:
                del self.n_of_address[address]

    def waits(self, connection: "BoundedConnection") -> None:
        """Record that a connection waits for its client."""
        if connection in self.addresses:
            self.waiting.setdefault(self.addresses[connection], {}).setdefault(connection)

    def works(self, connection: "BoundedConnection") -> None:
        """Record that a connection works on the answer to its client."""
        address = self.addresses.get(connection, "")
        others = self.waiting.get(address, {})
        others.pop(connection, None)
        if not others:
            self.waiting.pop(address, None)


class BoundedConnection(HttpToolsProtocol):
    """uvicorn's connection, except that it is closed if its client takes too long."""

    def __init__(self, *given: Any, all_open: OpenConnections, **named: Any) -> None:
        super().__init__(*given, **named)
        self.all_open = all_open
        self.seconds = all_open.limits.seconds

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore
        """Start the time limit of a client that has connected."""
        self._reading: Literal["nothing", "head", "body"] = "nothing"
        """The part of the current request that is being read."""
        self._has_begun = False
        """True if a byte of the awaited request has arrived."""
        self._n_head = 0
        self._deadline: asyncio.TimerHandle | None = None
        self._is_leaving = False
        self._n_drained = 0
        self._writing: asyncio.TimerHandle | None = None
        self._seconds_unread = 0.0
        super().connection_made(cast(asyncio.Transport, _ClosedInTime(transport, self)))
        if self.all_open.enter(self, _network(self.client[0] if self.client else "")):
            self._wait_for_client()
        elif len(self.all_open.refused) < MAX_REFUSED:
            self.all_open.refused.add(self)
            self._answer_and_leave(HTTPStatus.SERVICE_UNAVAILABLE)
        else:
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle a client that has disconnected."""
        self._stop_deadline()
        self._stop_writing()
        self.all_open.leave(self)
        super().connection_lost(exc)

    def abort(self) -> None:
        """Close the connection now, even if data have not been sent."""
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Handle bytes of a request. The first byte of a further request, whatever it is, starts
        the time of that request."""
        if self._is_leaving:
            self._n_drained += len(data)
            if self._n_drained > MAX_DRAINED:
                self.abort()
            return
        if not self._has_begun:
            self._has_begun = True
            if self.cycle is not None and self._deadline is not None:
                self._start_deadline(self.seconds)
        if self._reading != "body":
            self._n_head += len(data)
            if self._n_head > MAX_HEAD + READ_AT_ONCE:
                self.abort()
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        """Handle the first byte of a request that is not a line end."""
        self._reading = "head"
        self._has_begun = True
        self._size_of_headers = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Handle one header."""
        self._size_of_headers += len(name) + len(value)
        if self._size_of_headers > MAX_HEAD or len(self.headers) >= MAX_HEADERS:
            raise ValueError("the head of the request is too large")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Handle the end of a request's head."""
        if not self.url.startswith((b"/", b"*")):
            raise ValueError("the target of the request is not a path")  # it would name a host
        if len(self.pipeline) >= MAX_PIPELINED:
            self.abort()
            raise ValueError("too many requests wait for an earlier response")
        self._reading = "body"
        self._seconds_unread = 0.0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Handle the end of a request."""
        self._reading = "nothing"
        self._has_begun = False
        self._n_head = 0
        self._stop_deadline()
        self.all_open.works(self)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Handle the end of an answer; its client may send another request."""
        if self._reading == "body" and self.cycle.response_complete:
            self.transport.close()  # which waits a little, as the client still sends
        has_next = bool(self.pipeline)
        super().on_response_complete()
        self._unset_keepalive_if_required()  # the deadline is ours
        if self.transport.is_closing():
            return
        is_next_whole = has_next and (bool(self.pipeline) or self._reading != "body")
        if not is_next_whole:
            self._wait_for_client()

    def pause_writing(self) -> None:
        """Handle a client that does not read its answer."""
        self._stop_writing()
        self._paused = self.loop.time()
        self._writing = self.loop.call_later(self.seconds - self._seconds_unread, self.abort)
        self.all_open.waits(self)
        super().pause_writing()

    def resume_writing(self) -> None:
        """Handle a client that reads again. The rest of its time is for the rest of the answer."""
        self._seconds_unread += self.loop.time() - self._paused
        self._stop_writing()
        if self._deadline is None:
            self.all_open.works(self)
        super().resume_writing()

    def leave(self, transport: asyncio.Transport) -> None:
        """Close the connection once the client has read its answer, or once its time is over."""
        if self._is_leaving or transport.is_closing():
            return
        self._is_leaving = True
        self.all_open.waits(self)
        if self._has_begun:
            self.flow.resume_reading()
            transport.write_eof()
            self._start_deadline(min(DRAIN_SECONDS, self.seconds))
        else:
            transport.close()
            self._start_deadline(self.seconds)

    def is_leaving(self) -> bool:
        """Tell whether nothing more is read or written."""
        return self._is_leaving

    def _wait_for_client(self) -> None:
        self._n_head = 0
        self._start_deadline(self.seconds)
        self.all_open.waits(self)

    def _start_deadline(self, seconds: float) -> None:
        self._stop_deadline()
        self._deadline = self.loop.call_later(seconds, self._end)

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _end(self) -> None:
        """Handle the end of a client's time."""
        is_answered = self._reading == "body" and self.cycle.response_started
        if self._is_leaving or not self._has_begun or is_answered:
            self.abort()
            return
        if self._reading == "body":  # the application waits for the rest
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._answer_and_leave(HTTPStatus.REQUEST_TIMEOUT)

    def _answer_and_leave(self, status: HTTPStatus) -> None:
        self._has_begun = True  # or may have: what is sent meanwhile is read
        first = f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        self.transport.write(f"{first}connection: close\r\ncontent-length: 0\r\n\r\n".encode())
        self.transport.close()

    def _stop_writing(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None


class _ClosedInTime:
    """The transport of a connection, which closes it by `BoundedConnection.leave`."""

    def __init__(self, transport: asyncio.Transport, connection: BoundedConnection) -> None:
        self._transport, self._connection = transport, connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._connection.is_leaving():
            self._transport.write(data)

    def close(self) -> None:
        self._connection.leave(self._transport)

    def is_closing(self) -> bool:
        return self._connection.is_leaving() or self._transport.is_closing()


def bounded_connections(limits: ConnectionLimits) -> Any:
    """Return the factory with which uvicorn makes its connections."""
    return partial(BoundedConnection, all_open=OpenConnections(limits))


def _network(host: str) -> str:
    """Return what counts as one address: with IPv6, a customer has 2⁶⁴ addresses."""
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host.split("%")[0])
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))
