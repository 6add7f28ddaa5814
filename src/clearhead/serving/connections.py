"""Connections of clients that are slow, silent or gone. uvicorn reads and writes HTTP; here are the
times and sizes that it does not bound: the head of a request, and an answer that is not read."""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD = 32_768  # bytes


class BoundedConnection(HttpToolsProtocol):
    """uvicorn's connection, which is closed when its client takes too long."""

    @property
    def seconds(self) -> float:
        """For each of: a head, an answer that waits to be read, and the next request."""
        return self.timeout_keep_alive

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore
        """A client has connected, and has so long to say what it wants."""
        self._head_bytes = 0
        self._reading: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has left."""
        self._head_arrived()
        self._stop_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes of a request."""
        if self._reading is not None:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD + 2**18:  # asyncio reads up to 256 kB at once
                self.transport.abort()
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        self._await_head()
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._head_size += len(name) + len(value)
        if self._head_size > MAX_HEAD:
            raise ValueError("the head of the request is too large")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is there; its body has a time of its own (`bodies.py`)."""
        self._head_arrived()
        super().on_headers_complete()

    def pause_writing(self) -> None:
        """The client does not read its answer."""
        self._stop_writing()
        self._writing = self.loop.call_later(self.seconds, self.transport.abort)
        super().pause_writing()

    def resume_writing(self) -> None:
        """It reads on."""
        self._stop_writing()
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        """Nothing more was asked. What the client has not read by then, it will not read."""
        super().timeout_keep_alive_handler()
        self.loop.call_later(self.seconds, self.transport.abort)

    def _await_head(self) -> None:
        self._head_size = 0
        if self._reading is None:
            self._head_bytes = 0
            self._reading = self.loop.call_later(self.seconds, self.transport.abort)

    def _head_arrived(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _stop_writing(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
