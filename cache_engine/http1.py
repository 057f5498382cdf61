"""A small HTTP/1.1 client for bytes by the gigabyte and requests by the ten thousand.

The standard libraries re-chunk and copy: 0.15-0.9 GB/s a core where the kernel gives 4. Here a body goes from
the socket into the caller's own view, and a request costs a few microseconds. Used by the sources and between
readers and workers. It follows no redirects, decodes nothing and retries nothing, except that a kept connection
which proves dead before the first byte of an answer is replaced once.
"""

from __future__ import annotations

import os
import re
import ssl
import threading
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from cache_engine.errors import InvalidValue
from cache_engine.http1_connection import (
    HEAD_LIMIT,
    ConnectFailed,
    Connection,
    ConnectionBroken,
    TimedOut,
    Timeouts,
    TransportError,
    connect,
)
from cache_engine.http1_head import IDEMPOTENT, Head, MalformedHead, parse_chunk_size, parse_head, request_head

__all__ = ["ConnectFailed", "ConnectionBroken", "Pool", "Response", "TimedOut", "Timeouts", "TransportError"]

_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"[0-9A-Za-z._:%-]{1,253}", re.ASCII)
_CHUNK_LINE = 4096
DEFAULT_TIMEOUTS = Timeouts()
_LAST_CHUNK = b"\r\n0\r\n\r\n"
_INTERIM_LIMIT = 8
"""How many 1xx answers may come before the real one."""


class Response:
    """One answer; its body is read once, front to back, by one thread. Close it, or use it in a `with`."""

    __slots__ = ("_chunked", "_connection", "_keep", "_left", "_pool", "done", "headers", "length", "status")

    def __init__(self, head: Head, connection: Connection, pool: Pool) -> None:
        self.status = head.status
        self.headers: Mapping[str, str] = head.headers
        self.length = head.length
        """Bytes of body that were announced; None where only its end tells. Nothing follows a HEAD: 0."""
        self.done = head.length == 0
        """Whether the whole body has been read."""
        self._connection: Connection | None = connection
        self._pool = pool
        self._keep = head.keep_alive
        self._chunked = head.chunked
        self._left = -1 if head.chunked else head.length
        """Bytes left of the body, or of the current chunk (-1: the first one has not begun); None: until the end."""

    def __enter__(self) -> Response:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Response {self.status} length={self.length} left={self._left} done={self.done}>"

    def readinto(self, view: memoryview) -> int:
        """Fill `view` as far as the body goes; 0 at its end.

        Raises TimedOut or ConnectionBroken (also for a body shorter than announced), whose `received` says how
        many bytes of `view` are good; the response cannot be read any further then.
        """
        if self.done or not len(view):
            return 0
        if self._connection is None:
            raise ConnectionBroken("this response was closed or broke before")
        try:
            return self._read_chunks(view) if self._chunked else self._read_plain(view)
        except TransportError:
            self._drop()
            raise

    def read(self, limit: int) -> bytes:
        """The rest of the body, at most `limit` bytes of it; `done` tells whether that was all."""
        parts = []
        while limit > 0 and not self.done:
            known = self._left if not self._chunked and self._left is not None else 64 << 10
            buffer = bytearray(min(limit, known))
            count = self.readinto(memoryview(buffer))
            parts.append(bytes(buffer[:count]) if count < len(buffer) else bytes(buffer))
            limit -= count
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """Give the connection back if the body was read whole; close it otherwise. Twice is once."""
        connection = self._connection
        if connection is None:
            return
        if not self.done and not self._chunked and 0 < (self._left or 0) <= connection.ahead():
            self.readinto(memoryview(bytearray(self._left or 0)))  # a short body that is here already
        if self.done and self._keep and not connection.ahead():
            self._connection = None
            self._pool._give_back(connection)
        else:
            self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _read_plain(self, view: memoryview) -> int:
        assert self._connection is not None
        if self._left is None:
            count = self._connection.fill(view)
            self.done = count < len(view)
            return count
        if len(view) > self._left:
            view = view[: self._left]
        count = self._connection.fill(view)
        self._left -= count
        if count < len(view):
            raise ConnectionBroken(f"the body ended {self._left} bytes before its announced {self.length}", count)
        self.done = not self._left
        return count

    def _read_chunks(self, view: memoryview) -> int:
        assert self._connection is not None and self._left is not None
        count = 0
        try:
            while count < len(view):
                if self._left <= 0 and not self._next_chunk(self._connection):
                    return count
                part = view[count : count + self._left]
                got = self._connection.fill(part)
                count, self._left = count + got, self._left - got
                if got < len(part):
                    raise ConnectionBroken("the connection closed in the middle of a chunk")
        except TransportError as error:
            error.received = count + error.received
            raise
        if not self._left:
            self.done = self._connection.take(_LAST_CHUNK)
        return count

    def _next_chunk(self, connection: Connection) -> bool:
        if self._left == 0 and connection.read_until(b"\r\n", _CHUNK_LINE):
            raise ConnectionBroken("a chunk is longer than its size says")
        try:
            self._left = parse_chunk_size(connection.read_until(b"\r\n", _CHUNK_LINE))
        except MalformedHead as error:
            raise ConnectionBroken(str(error)) from error
        if self._left:
            return True
        while connection.read_until(b"\r\n", HEAD_LIMIT):  # trailers: nobody here wants them
            pass
        self.done = True
        return False


class _Idle:
    """The kept connections of one process: `connections` is a stack (the warmest is taken first), under `lock`."""

    __slots__ = ("connections", "lock", "pid")

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.connections: list[Connection] = []


class Pool:
    """Keep-alive connections to one origin. Safe from any thread; a forked child starts with none of them.

    `size` bounds the idle connections that are kept, not how many may be in use: that is the callers' budget.
    """

    def __init__(
        self, url: str, *, timeouts: Timeouts = DEFAULT_TIMEOUTS, tls: ssl.SSLContext | None = None, size: int = 64
    ) -> None:
        self._host, self._port, secure = _origin(url)
        default = self._port == _PORTS["https" if secure else "http"]
        name = f"[{self._host}]" if ":" in self._host else self._host
        self._authority = name if default else f"{name}:{self._port}"
        self.origin = f"{'https' if secure else 'http'}://{self._authority}"
        self._timeouts = timeouts
        self._tls = (tls or ssl.create_default_context()) if secure else None
        self._size = size
        self._idle = _Idle()

    def __repr__(self) -> str:
        return f"<Pool {self.origin} idle={len(self._idle.connections)}/{self._size} pid={self._idle.pid}>"

    def request(self, method: str, target: str, headers: Sequence[tuple[str, str]] = (), body: bytes = b"") -> Response:
        """Send, and read the head of the answer. `target` is the percent-encoded path with its query.

        Raises ConnectFailed, TimedOut, ConnectionBroken, or InvalidValue for what cannot stand in a request.
        """
        head = request_head(method, target, self._authority, headers, len(body))
        kept = self._take()
        if kept is not None:
            try:
                return self._exchange(kept, method, head, body)
            except ConnectionBroken:
                if kept.used or method not in IDEMPOTENT:
                    raise
        return self._exchange(self._connect(), method, head, body)

    def close(self) -> None:
        """Close what is idle. The pool stays usable."""
        idle, self._idle = self._idle, _Idle()
        for connection in idle.connections:
            connection.close()

    def _connect(self) -> Connection:
        return connect(self._host, self._port, self._timeouts.connect, self._tls)

    def _exchange(self, connection: Connection, method: str, head: bytes, body: bytes) -> Response:
        """`connection.used` tells afterwards whether a byte of the answer had come when it failed."""
        connection.used = False
        try:
            connection.set_timeout(self._timeouts.first_byte)
            connection.send(head, body)
            for _ in range(_INTERIM_LIMIT):
                raw = connection.read_until(b"\r\n\r\n", HEAD_LIMIT)
                connection.used = True
                parsed = parse_head(raw, method)
                if parsed.status >= 200:
                    connection.set_timeout(self._timeouts.progress)
                    return Response(parsed, connection, self)
            raise ConnectionBroken(f"{self._authority} sent {_INTERIM_LIMIT} interim answers and no real one")
        except MalformedHead as error:
            connection.close()
            raise ConnectionBroken(f"{self._authority}: {error}") from error
        except BaseException:  # Ctrl-C included: half an exchange must never come back to the pool
            connection.used = connection.used or connection.ahead() > 0
            connection.close()
            raise

    def _take(self) -> Connection | None:
        idle = self._of_this_process()
        while True:
            with idle.lock:
                if not idle.connections:
                    return None
                connection = idle.connections.pop()
            if connection.idle_and_alive():
                return connection
            connection.close()

    def _give_back(self, connection: Connection) -> None:
        idle = self._of_this_process()
        if connection.pid == idle.pid:
            with idle.lock:
                if len(idle.connections) < self._size:
                    idle.connections.append(connection)
                    return
        connection.close()

    def _of_this_process(self) -> _Idle:
        """The lock of a forked child may have been copied while held: the child never touches it."""
        idle = self._idle
        if idle.pid != os.getpid():
            inherited, self._idle = idle.connections, _Idle()
            for connection in inherited:
                connection.close()  # only this process's descriptor: no byte and no FIN leaves
            idle = self._idle
        return idle


def _origin(url: str) -> tuple[str, int, bool]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidValue(f"{url!r} is no URL: {error}") from error
    if parts.scheme not in _PORTS or not _HOST.fullmatch(parts.hostname or ""):
        raise InvalidValue("a pool needs the URL of an origin, such as http://host:8080")
    if parts.username is not None or parts.password is not None:
        raise InvalidValue(f"the URL of {parts.hostname} carries a user or a password; give credentials by reference")
    return str(parts.hostname), port or _PORTS[parts.scheme], parts.scheme == "https"
