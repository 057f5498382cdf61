"""A server that says exactly the bytes a test wrote down: for what no well-behaved server would send."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

RESET = b"<reset the connection>"
CLOSE = b"<close the connection>"


@dataclass
class Request:
    """What came in: `connection` counts the connections from 0, `number` the requests on all of them."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    connection: int
    number: int
    raw: bytes = b""


Answer = Callable[[Request], Iterable[bytes | threading.Event]]


@dataclass
class WireServer:
    """Answers each request with the pieces that `answer` gives: bytes are sent, an Event is waited for."""

    answer: Answer
    tls: ssl.SSLContext | None = None
    log: list[Request] = field(default_factory=list)
    connections: int = 0

    def __enter__(self) -> WireServer:
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in self._sockets:
            sock.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(sock)
            number, self.connections = self.connections, self.connections + 1
            threading.Thread(target=self._serve, args=(sock, number), daemon=True).start()

    def _serve(self, sock: socket.socket, connection: int) -> None:
        try:
            if self.tls:
                sock = self.tls.wrap_socket(sock, server_side=True)
                self._sockets.append(sock)
            stream = sock.makefile("rb")
            while request := self._read(stream, connection):
                for piece in self.answer(request):
                    if isinstance(piece, threading.Event):
                        piece.wait(10)
                    elif piece is RESET:
                        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        stream.close()
                        sock.close()
                        return
                    elif piece is CLOSE:
                        sock.shutdown(socket.SHUT_RDWR)
                        return
                    else:
                        sock.sendall(piece)
        except (OSError, ValueError):
            pass
        finally:
            sock.close()

    def _read(self, stream: object, connection: int) -> Request | None:
        lines = []
        while (line := stream.readline()) not in (b"", b"\r\n"):  # type: ignore[attr-defined]
            lines.append(line)
        if not lines:
            return None
        method, target, _ = lines[0].decode("latin-1").split(" ", 2)
        pairs = (line.decode("latin-1").partition(":") for line in lines[1:])
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        body = stream.read(int(headers.get("content-length", 0)))  # type: ignore[attr-defined]
        with self._lock:
            request = Request(method, target, headers, body, connection, len(self.log), b"".join(lines))
            self.log.append(request)
        return request


def ok(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    """A whole answer with a Content-Length."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1") + body
