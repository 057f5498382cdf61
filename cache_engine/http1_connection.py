"""One TCP or TLS connection for `http1`: bytes from the kernel straight into the caller's memory.

A plain socket stays blocking and the kernel keeps the time (SO_RCVTIMEO): Python's own time-outs cost a poll()
a call and forbid MSG_WAITALL, with which 1 MiB arrives in one system call and without the GIL. OpenSSL does not
return from a blocking socket's SO_RCVTIMEO, so TLS connections use Python's time-outs, and no MSG_WAITALL.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import struct
from dataclasses import dataclass

_HEAD_RECV = 16 << 10
"""Bytes asked for while a head is read: a small object arrives together with its head in one call."""
HEAD_LIMIT = 64 << 10
"""The longest response head that is accepted, in bytes."""


class TransportError(OSError):
    """The connection failed. `received`: bytes that the failing readinto had already put into its view."""

    def __init__(self, message: str, received: int = 0) -> None:
        super().__init__(message)
        self.received = received


class ConnectFailed(TransportError):
    """No connection: refused, unreachable, unknown name, TLS not agreed, or not within the time allowed."""


class TimedOut(TransportError):
    """Connected, but no byte moved for the time allowed."""


class ConnectionBroken(TransportError):
    """Reset, closed before the body was whole, or an answer that is not HTTP."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long to wait, in seconds, for each kind of silence; no limit on the whole of a request."""

    connect: float = 5.0
    """Until TCP (and TLS) stands: a healthy host answers in a round trip, a SYN lost twice takes 3 s."""
    first_byte: float = 20.0
    """Until the head of the answer begins: stores under load take seconds, hardly ever more."""
    progress: float = 20.0
    """Between two pieces of the body (a silence that begins in the middle of a read may count twice)."""


class Connection:
    """A socket, its origin's clock, and the bytes read ahead of the reader. Used by one thread at a time."""

    __slots__ = ("_ahead", "_flags", "_poll", "_socket", "_timeout", "_where", "pid", "used")

    def __init__(self, sock: socket.socket, where: str, tls: bool) -> None:
        self._socket = sock
        self._where = where
        self._flags = 0 if tls else socket.MSG_WAITALL
        self._timeout = -1.0
        self._ahead = b""
        self._poll: select.poll | None = None
        self.pid = os.getpid()
        self.used = False

    def __repr__(self) -> str:
        state = "reused" if self.used else "fresh"
        return f"<Connection {self._where} fd={self._socket.fileno()} {state} ahead={len(self._ahead)}>"

    def set_timeout(self, seconds: float) -> None:
        """The longest silence from here on, both ways."""
        if seconds == self._timeout:
            return
        if self._flags:
            timeval = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6) or (1 if seconds < 1 else 0))
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval)
        else:
            self._socket.settimeout(seconds)
        self._timeout = seconds

    def idle_and_alive(self) -> bool:
        """Whether nothing came in while nobody asked: the end of the stream, or bytes that belong to no answer."""
        if self._ahead:
            return False
        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(self._socket, select.POLLIN)
        return not self._poll.poll(0)

    def send(self, head: bytes, body: bytes) -> None:
        try:
            if body and len(body) > HEAD_LIMIT:
                self._socket.sendall(head)
                self._socket.sendall(body)
            else:
                self._socket.sendall(head + body)
        except OSError as error:
            raise self._failure(error, 0) from error

    def read_until(self, delimiter: bytes, limit: int) -> bytes:
        """The bytes before `delimiter`, which is taken too. Raises ConnectionBroken beyond `limit` or at the end."""
        seen = 0
        while True:
            at = self._ahead.find(delimiter, max(0, seen - len(delimiter)))
            if at > limit or (at < 0 and len(self._ahead) > limit):
                raise ConnectionBroken(f"{self._where} sent more than {limit} bytes where a short line belongs")
            if at >= 0:
                line, self._ahead = self._ahead[:at], self._ahead[at + len(delimiter) :]
                return line
            seen = len(self._ahead)
            self._ahead += self._recv_some()

    def take(self, expected: bytes) -> bool:
        """Take `expected` if exactly that lies ahead already; never waits."""
        if not self._ahead.startswith(expected):
            return False
        self._ahead = self._ahead[len(expected) :]
        return True

    def ahead(self) -> int:
        """How many bytes have arrived that nobody took."""
        return len(self._ahead)

    def fill(self, view: memoryview) -> int:
        """Fill `view`; short only where the other side closed. Raises TimedOut or ConnectionBroken with `received`."""
        size = len(view)
        done = min(size, len(self._ahead))
        if done:
            view[:done] = self._ahead[:done]
            self._ahead = self._ahead[done:]
        try:
            while done < size:
                count = self._socket.recv_into(view[done:] if done else view, size - done, self._flags)
                if not count:
                    break
                done += count
        except OSError as error:
            raise self._failure(error, done) from error
        return done

    def close(self) -> None:
        self._socket.close()

    def _recv_some(self) -> bytes:
        try:
            piece = self._socket.recv(_HEAD_RECV)
        except OSError as error:
            raise self._failure(error, 0) from error
        if not piece:
            raise ConnectionBroken(f"{self._where} closed the connection before the answer was whole")
        return piece

    def _failure(self, error: OSError, received: int) -> TransportError:
        if isinstance(error, BlockingIOError | TimeoutError):
            return TimedOut(f"{self._where} was silent for {self._timeout:g} s", received)
        return ConnectionBroken(f"the connection to {self._where} broke: {error}", received)


def connect(host: str, port: int, timeout: float, tls: ssl.SSLContext | None) -> Connection:
    """A connected socket. Raises ConnectFailed."""
    where = f"{host}:{port}"
    try:
        sock = socket.create_connection((host, port), timeout)
    except OSError as error:
        raise ConnectFailed(f"no connection to {where}: {error}; is it up, and is the address right?") from error
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            sock = tls.wrap_socket(sock, server_hostname=host)
        else:
            sock.settimeout(None)
    except OSError as error:
        sock.close()
        raise ConnectFailed(f"no TLS with {where}: {error}") from error
    return Connection(sock, where, tls is not None)
